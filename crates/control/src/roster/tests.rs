use altq_config::{Language, parse_str};
use altq_engine::headers::Key;

use super::*;

const POLICY: &str = "link down { rate 100Mbit/s  scheduler cbq
        class subscribers { share 80% }
        class rest { share 20%  default }
        match dport 53 -> rest }
    link up { rate 20Mbit/s  scheduler htb
        class all { rate 20Mbit/s
            class homes { rate 15Mbit/s  ceil 20Mbit/s }
            class others { rate 1Mbit/s  ceil 20Mbit/s  default } } }";

/// A roster, and the engines of its links, which get its changes.
struct World {
    roster: Roster,
    engines: Vec<(String, Engine)>,
}

impl World {
    fn new(room: usize) -> World {
        let policy = parse_str(POLICY, "test.altq", Language::Native).unwrap_or_else(|error| panic!("{error}"));
        let links: Vec<Arc<Link>> = policy.links.into_iter().map(Arc::new).collect();
        let engines = links.iter().map(|link| (link.name.clone(), Engine::new(&link.spec).unwrap())).collect();
        World { roster: Roster::new(links, room).unwrap(), engines }
    }

    fn make(&mut self, changes: Changes) {
        for (name, changes) in changes {
            let (_, engine) = self.engines.iter_mut().find(|(link, _)| *link == name).unwrap();
            for change in changes {
                engine.apply(0, &change).unwrap_or_else(|error| panic!("{name}: {change:?}: {error}"));
            }
        }
        self.check();
    }

    /// Checks that the engines have the classes of the links, below the same parents, and send
    /// packets of each subscriber to its class.
    fn check(&mut self) {
        for (name, engine) in &mut self.engines {
            let link = self.roster.link(name).unwrap();
            for (id, class) in (0..).zip(&link.classes).skip(1) {
                let expected = (!class.name.is_empty()).then(|| link.spec.classes[id as usize].parent);
                assert_eq!(engine.parent(id), expected, "{name}: class {id} `{}`", class.name);
            }
            for person in self.roster.people.values() {
                let class = link.class(&person.asked.id);
                for prefix in &person.asked.addresses {
                    let address = prefix.address();
                    let key = Key { family: if address.v6 { 6 } else { 4 }, dst: address.bits, ..Key::default() };
                    let default = link.spec.default;
                    assert_eq!(engine.classify(&key), class.or(default), "{name}: {prefix}");
                }
            }
            let stranger = Key { family: 4, src: 0x0909_0909, dst: 0x0808_0808, ..Key::default() };
            assert_eq!(engine.classify(&stranger), link.spec.default);
            let (whole, kept) = without_gaps(link);
            assert!(whole.classes.iter().all(|class| !class.name.is_empty()));
            assert_eq!(whole.classes.len(), kept.len());
            Engine::new(&whole.spec).unwrap();
        }
    }

    fn set(&mut self, subscribers: Vec<Subscriber>) -> Report {
        let (report, changes) = self.roster.set(subscribers);
        self.make(changes);
        report
    }

    fn delete(&mut self, ids: &[&str]) -> Report {
        let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        let (report, changes) = self.roster.delete(&ids);
        self.make(changes);
        report
    }
}

fn place(link: &str, within: Option<&str>, gets: Gets) -> Place {
    Place { link: link.to_owned(), within: within.map(str::to_owned), gets }
}

fn subscriber(id: &str, address: &str, classes: Vec<Place>) -> Subscriber {
    Subscriber { id: id.to_owned(), addresses: vec![Prefix::read(address).unwrap()], classes }
}

/// A subscriber with 1 Mbit/s down and 100 kbit/s up.
fn usual(id: &str, address: &str) -> Subscriber {
    let up = place("up", Some("homes"), Gets::Rate(100_000));
    subscriber(id, address, vec![place("down", None, Gets::Rate(1_000_000)), up])
}

fn counts(report: &Report) -> (usize, usize, usize) {
    (report.done, report.unchanged, report.failed.len())
}

#[test]
fn subscribers_come_change_and_go() {
    let mut world = World::new(10_000);
    let (one, two) = (usual("one", "10.0.0.1"), usual("two", "2001:db8:2::/48"));
    assert_eq!(counts(&world.set(vec![one.clone(), two.clone()])), (2, 0, 0));
    assert_eq!(counts(&world.set(vec![one.clone(), two.clone()])), (0, 2, 0), "the same again");
    let down = world.roster.link("down").unwrap();
    let class = down.class("one").unwrap();
    assert_eq!(down.class_name(down.spec.classes[class as usize].parent), "subscribers");
    assert_eq!(down.guarantee(class), Some(Rate::mbit_s(1)));
    let up = world.roster.link("up").unwrap();
    let parent = up.spec.classes[up.class("two").unwrap() as usize].parent;
    assert_eq!(up.class_name(parent), "homes");
    // Another rate, another queue, and no longer a class in the other link.
    let words = Gets::Words("share 2% borrow queue drop_tail { limit 10packets }".to_owned());
    let changed = subscriber("one", "10.0.0.9", vec![place("down", None, words)]);
    assert_eq!(counts(&world.set(vec![changed])), (1, 0, 0));
    let down = world.roster.link("down").unwrap();
    assert_eq!(down.class("one"), Some(class), "it keeps its class, and what waits there");
    assert_eq!(down.guarantee(class), Some(Rate::mbit_s(2)));
    assert!(world.roster.link("up").unwrap().class("one").is_none());
    // Its former address is free, and its former number in `up` is used again.
    assert_eq!(counts(&world.set(vec![usual("three", "10.0.0.1"), usual("four", "10.0.0.4")])), (2, 0, 0));
    assert_eq!(counts(&world.delete(&["one", "nobody", "three"])), (2, 1, 0));
    assert_eq!(world.roster.len(), 2);
    assert_eq!(counts(&world.set(vec![usual("five", "10.0.0.5"), one])), (2, 0, 0));
    assert_eq!(counts(&world.delete(&["one", "two", "four", "five"])), (4, 0, 0));
    assert!(world.roster.is_empty());
    let rules = &world.roster.link("down").unwrap().spec.rules.rules;
    assert_eq!(rules.len(), 1, "the policy's own");
}

/// Impossible subscribers are refused one by one, and leave nothing behind: neither a class in a
/// link that has room for it, nor a number in the trial.
#[test]
fn a_subscriber_gets_all_of_its_classes_or_none() {
    let mut world = World::new(10_000);
    world.set(vec![usual("one", "10.0.0.0/24"), usual("zero", "10.9.0.1")]);
    let refused = |world: &mut World, subscriber: Subscriber, why: &str| {
        let report = world.set(vec![subscriber]);
        assert_eq!(counts(&report), (0, 0, 1), "{why}");
        let said = report.failed[0].error.to_string();
        assert!(said.contains(why), "{said}");
    };
    let down = |gets| place("down", None, gets);
    let all = place("up", Some("homes"), Gets::Rate(15_000_000));
    for (subscriber, why) in [
        (usual("two", "10.0.0.7"), "is an address of subscriber one"),
        (usual("two", "10.0.0.0/16"), "is an address of subscriber one"),
        // Part of the prefix is its own, but another part is somebody else's.
        (usual("one", "10.0.0.0/8"), "is an address of subscriber zero"),
        (usual("rest", "10.1.0.1"), "has a class `rest`"),
        (subscriber("two", "10.1.0.1", vec![place("wan", None, Gets::Rate(1))]), "no link `wan` runs here"),
        (subscriber("two", "10.1.0.1", vec![place("up", Some("none"), Gets::Rate(1))]), "no class `none`"),
        (subscriber("two", "10.1.0.1", vec![place("up", Some("one"), Gets::Rate(1))]), "no class `one`"),
        (subscriber("two", "10.1.0.1", vec![down(Gets::Words("rates 1Mbit/s".into()))]), "`rates`"),
        // There are 80 Mbit/s, and the first subscribers have 2 of them.
        (subscriber("two", "10.1.0.1", vec![down(Gets::Rate(78_500_000))]), "80500000 bit/s of its 80000000 bit/s"),
        (subscriber("two", "10.1.0.1", vec![down(Gets::Rate(1000)), all]), "15200000 bit/s of its 15000000 bit/s"),
    ] {
        refused(&mut world, subscriber, why);
        assert_eq!(world.roster.len(), 2);
    }
    // One of several fails.
    let report = world.set(vec![usual("a", "10.2.0.1"), usual("b", "10.2.0.1"), usual("c", "10.2.0.3")]);
    assert_eq!((counts(&report), report.failed[0].id.as_str()), ((2, 0, 1), "b"));
    // Exactly what is left fits: 80 - 4 Mbit/s.
    assert_eq!(counts(&world.set(vec![subscriber("d", "10.3.0.1", vec![down(Gets::Rate(76_000_000))])])), (1, 0, 0));
    refused(&mut world, subscriber("e", "10.3.0.2", vec![down(Gets::Rate(1))]), "80000001 bit/s");
}

#[test]
fn an_address_goes_from_one_to_another_in_one_request() {
    let mut world = World::new(10_000);
    world.set(vec![usual("one", "10.0.0.1"), usual("two", "10.0.0.2"), usual("three", "10.0.0.3")]);
    // Each takes what the next one gives up.
    let next = vec![usual("one", "10.0.0.2"), usual("two", "10.0.0.3"), usual("three", "10.0.0.4")];
    assert_eq!(counts(&world.set(next)), (3, 0, 0));
    let taken = world.set(vec![usual("four", "10.0.0.4"), usual("five", "10.0.0.1")]);
    assert_eq!((counts(&taken), taken.failed[0].id.as_str()), ((1, 0, 1), "four"));
}

#[test]
fn addresses_are_exchanged_in_one_request() {
    let mut world = World::new(10_000);
    let first = vec![usual("one", "10.0.0.1"), usual("two", "10.0.0.0/31"), usual("three", "10.0.0.3")];
    // The second has a prefix with the address of the first.
    assert_eq!(counts(&world.set(first)), (2, 0, 1));
    assert_eq!(counts(&world.set(vec![usual("two", "10.0.0.2")])), (1, 0, 0));
    let turned = vec![usual("one", "10.0.0.2"), usual("two", "10.0.0.3"), usual("three", "10.0.0.1")];
    // One that is new gets what is left over.
    let more = vec![usual("four", "10.0.0.1"), usual("one", "10.0.0.3"), usual("two", "10.0.0.2")];
    assert_eq!(counts(&world.set(turned.clone())), (3, 0, 0));
    assert_eq!(counts(&world.set(turned)), (0, 3, 0), "the same again");
    let report = world.set(more.clone());
    assert_eq!((counts(&report), report.failed[0].id.as_str()), ((2, 0, 1), "four"), "three has it still");
    assert_eq!(counts(&world.delete(&["three"])), (1, 0, 0));
    assert_eq!(counts(&world.set(more)), (1, 2, 0));
}

#[test]
fn who_cannot_be_changed_keeps_its_address_in_an_exchange() {
    let mut world = World::new(10_000);
    world.set(vec![usual("one", "10.0.0.1"), usual("two", "10.0.0.2"), usual("three", "10.0.0.3")]);
    let too_much = |id: &str, address: &str| subscriber(id, address, vec![place("down", None, Gets::Rate(90_000_000))]);
    let names = |report: &Report| report.failed.iter().map(|one| one.id.clone()).collect::<Vec<String>>();
    // There are 80 Mbit/s. What the second cannot give up, the first does not get.
    let report = world.set(vec![usual("one", "10.0.0.2"), too_much("two", "10.0.0.1")]);
    assert_eq!((counts(&report), names(&report)), ((0, 0, 2), vec!["two".to_owned(), "one".to_owned()]));
    assert!(report.failed[1].error.to_string().contains("10.0.0.2 is an address of subscriber two"), "{report:?}");
    // Two want the same.
    let report = world.set(vec![usual("one", "10.0.0.2"), usual("two", "10.0.0.1"), usual("three", "10.0.0.0/31")]);
    assert_eq!((counts(&report), names(&report)), ((2, 0, 1), vec!["three".to_owned()]));
    assert_eq!(counts(&world.set(vec![usual("two", "10.0.0.1"), usual("three", "10.0.0.3")])), (0, 2, 0));
}

/// Both alone would fit; the second cannot when the first has its new class.
#[test]
fn an_exchange_that_does_not_fit_as_a_whole_leaves_no_address_with_two() {
    let mut world = World::new(10_000);
    let with = |id: &str, address: &str, rate| subscriber(id, address, vec![place("down", None, Gets::Rate(rate))]);
    world.set(vec![with("one", "10.0.0.1", 10_000_000), with("two", "10.0.0.2", 10_000_000)]);
    let report = world.set(vec![with("one", "10.0.0.2", 60_000_000), with("two", "10.0.0.1", 60_000_000)]);
    assert_eq!(counts(&report), (0, 0, 2), "{report:?}");
    assert_eq!(counts(&world.set(vec![with("two", "10.0.0.2", 10_000_000)])), (0, 1, 0));
}

/// A roster of these subscribers, which need no classes for what is tested.
fn of_people(people: &[Subscriber]) -> Roster {
    let mut roster = Roster::new([], 0).unwrap();
    for one in people {
        roster.owners.take(one);
        roster.people.insert(one.id.clone(), Person { asked: one.clone(), classes: Vec::new() });
    }
    roster
}

/// Checks that everybody has its own addresses in a roster.
fn check_owners(roster: &Roster, people: &[Subscriber]) {
    for one in people {
        for prefix in &one.addresses {
            assert_eq!(roster.owners.of(*prefix, |_| false), Some(&one.id), "{prefix}");
        }
    }
}

fn overlap(a: &Subscriber, b: &Subscriber) -> bool {
    let both = |a: Prefix, b: Prefix| {
        let (a, b) = (a.address(), b.address());
        a.v6 == b.v6 && (a.bits ^ b.bits) & a.mask & b.mask == 0
    };
    a.addresses.iter().any(|one| b.addresses.iter().any(|other| both(*one, *other)))
}

/// Who is refused, by the definition: again and again the first of the group that is to get an
/// address of somebody who is not in the group, or of one before it in the group.
fn refused_one_by_one(people: &[Subscriber], mut group: Vec<Subscriber>) -> Vec<String> {
    let mut refused = Vec::new();
    loop {
        let stays = |one: &&Subscriber| group.iter().all(|other| other.id != one.id);
        let staying: Vec<&Subscriber> = people.iter().filter(stays).collect();
        let conflicts = |at: &usize| {
            let one = &group[*at];
            staying.iter().any(|other| overlap(one, other)) || group[..*at].iter().any(|other| overlap(one, other))
        };
        let Some(at) = (0..group.len()).find(conflicts) else { return refused };
        refused.push(group.remove(at).id);
    }
}

#[test]
fn those_that_conflict_in_an_exchange_are_refused_in_their_order() {
    let mut state = 1u64;
    let mut below = |most: u64| {
        // The generator of Knuth's MMIX.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % most
    };
    let (mut some, mut all) = (0, 0);
    for round in 0..2000 {
        // Addresses and short prefixes among 16 addresses of each family.
        let mut addresses = || -> Vec<Prefix> {
            let mut one = || {
                let bits = below(3);
                let last = below(16) >> bits << bits;
                let text = match below(4) {
                    0 => format!("2001:db8::{last:x}/{}", 128 - bits),
                    _ => format!("10.0.0.{last}/{}", 32 - bits),
                };
                Prefix::read(&text).unwrap()
            };
            vec![one(), one()]
        };
        let person = |at: usize, addresses| Subscriber { id: format!("s{at}"), addresses, classes: Vec::new() };
        let mut people: Vec<Subscriber> = Vec::new();
        for at in 0..12 {
            let new = person(at, addresses());
            if people.iter().all(|one| !overlap(one, &new)) {
                people.push(new);
            }
        }
        // All but the first are in the group, in another order than their addresses. Many want what
        // another one has.
        let mut group: Vec<Subscriber> = Vec::new();
        for (at, one) in people.iter().enumerate().skip(1) {
            let other = people[(at + round) % people.len()].addresses.clone();
            let wanted = if round % 3 == 0 { addresses() } else { other };
            group.insert(at / 2, Subscriber { addresses: wanted, ..one.clone() });
        }
        let (mut roster, mut report) = (of_people(&people), Report::default());
        let expected = refused_one_by_one(&people, group.clone());
        let agreed = roster.agreed(group.clone(), &mut report);
        let refused: Vec<String> = report.failed.iter().map(|one| one.id.clone()).collect();
        assert_eq!(refused, expected, "{people:?} {group:?}");
        group.retain(|one| !expected.contains(&one.id));
        assert_eq!(agreed, group);
        check_owners(&roster, &people);
        some += usize::from(!expected.is_empty());
        all += usize::from(group.is_empty());
    }
    assert!(some > 100 && all < 1900, "{some} {all}");
}

/// Each is to get the address of the next one, and the last one that of somebody who keeps it. So
/// the last one is refused, and each for the one after it.
#[test]
fn thousands_are_refused_one_for_another() {
    let address = |n: usize| format!("10.0.{}.{}", n >> 8, n & 255);
    let there = |n: usize| subscriber(&format!("s{n}"), &address(n), Vec::new());
    let people: Vec<Subscriber> = (0..=3000).map(there).collect();
    let group: Vec<Subscriber> = (0..3000).map(|n| subscriber(&format!("s{n}"), &address(n + 1), Vec::new())).collect();
    let (mut roster, mut report) = (of_people(&people), Report::default());
    assert!(roster.agreed(group, &mut report).is_empty());
    assert_eq!(report.failed.len(), 3000);
    for (failure, n) in report.failed.iter().zip((0..3000).rev()) {
        assert_eq!(failure.id, format!("s{n}"));
        let why = format!("{} is an address of subscriber s{}", address(n + 1), n + 1);
        assert_eq!(failure.error.message, why);
    }
    check_owners(&roster, &people);
}

#[test]
fn only_who_still_has_an_address_is_at_it() {
    let mut world = World::new(10_000);
    world.set(vec![usual("one", "10.0.0.1"), usual("two", "2001:db8::/48")]);
    let at = |ids: &[&str], address: &str| {
        let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        world.roster.at(&ids, Prefix::read(address).unwrap())
    };
    assert_eq!(at(&["two", "one", "nobody"], "10.0.0.1"), ["one"]);
    assert_eq!(at(&["one", "two"], "2001:db8::/48"), ["two"]);
    assert!(at(&["one"], "10.0.0.2").is_empty() && at(&["one", "two"], "10.0.0.0/24").is_empty());
}

#[test]
fn those_that_were_there_come_again_even_if_they_no_longer_fit() {
    let mut world = World::new(10_000);
    // There are 80 Mbit/s.
    let half = |id: &str, address: &str| subscriber(id, address, vec![place("down", None, Gets::Rate(50_000_000))]);
    let both = vec![half("a", "10.0.0.1"), half("b", "10.0.0.2")];
    assert_eq!(counts(&world.set(both.clone())), (1, 0, 1));
    let (report, changes) = world.roster.set_again(both);
    world.make(changes);
    assert_eq!(counts(&report), (1, 1, 0), "{report:?}");
    let report = world.set(vec![half("c", "10.0.0.3")]);
    assert_eq!(counts(&report), (0, 0, 1), "the others must fit as before");
}

#[test]
fn there_is_room_for_so_many_packets() {
    let mut world = World::new(120);
    // Without `queue` a class has room for 50 packets, in cbq and in htb.
    assert_eq!(counts(&world.set(vec![usual("a", "10.0.0.1"), usual("b", "10.0.0.2")])), (2, 0, 0));
    let report = world.set(vec![usual("c", "10.0.0.3")]);
    assert!(report.failed[0].error.to_string().contains("150 packets, and there is room for 120"), "{report:?}");
    let short = place("down", None, Gets::Words("share 1% queue drop_tail { limit 20packets }".into()));
    assert_eq!(counts(&world.set(vec![subscriber("c", "10.0.0.3", vec![short])])), (1, 0, 0));
    world.delete(&["a"]);
    assert_eq!(counts(&world.set(vec![usual("d", "10.0.0.4")])), (1, 0, 0));
}

/// Each of two fits alone with its new class, but not both. Who has its new class all the same is
/// not said to be as before.
#[test]
fn half_of_an_exchange_that_is_refused_is_told_as_it_is() {
    let mut world = World::new(120);
    let one = |id: &str, address: &str, packets: u32| {
        let words = format!("share 1% queue drop_tail {{ limit {packets}packets }}");
        subscriber(id, address, vec![place("down", None, Gets::Words(words))])
    };
    assert_eq!(counts(&world.set(vec![one("a", "10.0.0.1", 40), one("b", "10.0.0.2", 40)])), (2, 0, 0));
    let report = world.set(vec![one("a", "10.0.0.2", 60), one("b", "10.0.0.1", 70)]);
    assert_eq!(counts(&report), (0, 0, 2));
    let said = |id: &str| report.failed.iter().find(|failure| failure.id == id).unwrap().error.message.clone();
    assert!(said("b").contains("130 packets, and there is room for 120"), "{}", said("b"));
    assert_eq!(said("a"), "10.0.0.2 is an address of subscriber b; it has its new classes, and keeps its addresses");
    assert_eq!(world.roster.subscriber("a"), Some(&one("a", "10.0.0.1", 60)));
    assert_eq!(world.roster.subscriber("b"), Some(&one("b", "10.0.0.2", 40)));
    assert_eq!(world.roster.subscriber("c"), None);
}

#[test]
fn percentages_are_of_the_rate_of_the_policy_whatever_rate_is_set() {
    let mut world = World::new(1000);
    let place = place("down", None, Gets::Words("share 1%".into()));
    world.set(vec![subscriber("early", "10.0.0.9", vec![place.clone()])]);
    let changes = world.roster.set_rate("down", Rate::mbit_s(200)).unwrap();
    world.make(changes);
    assert_eq!(world.engines[0].1.rate(), Rate::mbit_s(200));
    assert!(world.roster.set_rate("down", Rate::mbit_s(200)).unwrap().is_empty());
    assert!(world.roster.set_rate("wan", Rate::mbit_s(1)).unwrap_err().to_string().contains("there is down, up"));
    world.set(vec![subscriber("a", "10.0.0.1", vec![place])]);
    let down = world.roster.link("down").unwrap();
    for name in ["early", "a"] {
        assert_eq!(down.guarantee(down.class(name).unwrap()), Some(Rate::mbit_s(1)), "{name}");
    }
}

/// Many at once, in any order. The trial and the engine always have the same numbers.
#[test]
fn hundreds_come_and_go() {
    let mut world = World::new(1 << 20);
    let many = |from: u32, to: u32| -> Vec<Subscriber> {
        let one = |n: u32| {
            let address = format!("10.{}.{}.{}", n >> 16, n >> 8 & 255, n & 255);
            let up = place("up", Some("homes"), Gets::Rate(10_000));
            subscriber(&format!("s{n}"), &address, vec![place("down", None, Gets::Rate(50_000)), up])
        };
        (from..to).map(one).collect()
    };
    assert_eq!(counts(&world.set(many(0, 400))), (400, 0, 0));
    let third: Vec<String> = (0..400).step_by(3).map(|n| format!("s{n}")).collect();
    let third: Vec<&str> = third.iter().map(String::as_str).collect();
    assert_eq!(counts(&world.delete(&third)), (134, 0, 0));
    assert_eq!(counts(&world.set(many(300, 600))), (200 + 34, 66, 0));
    assert_eq!(counts(&world.set(many(0, 600))), (100, 500, 0));
    assert_eq!(world.roster.len(), 600);
    assert_eq!(world.roster.subscribers().count(), 600);
}

/// A link that the kernel executes cannot have classes of subscribers.
#[test]
fn a_link_of_the_kernel_takes_no_subscribers() {
    let text = "link down { device eth0  path kernel  rate 100Mbit/s  scheduler htb
        class all { rate 100Mbit/s  default } }";
    let policy = parse_str(text, "test.altq", Language::Native).unwrap_or_else(|error| panic!("{error}"));
    let mut roster = Roster::new(policy.links.into_iter().map(Arc::new), 1000).unwrap();
    let (report, changes) = roster.set(vec![subscriber("one", "10.0.0.1", vec![place("down", None, Gets::Rate(1))])]);
    assert_eq!(counts(&report), (0, 0, 1));
    assert!(report.failed[0].error.message.contains("the kernel executes link `down`"), "{:?}", report.failed);
    assert!(changes.is_empty() && roster.is_empty());
}
