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

#[test]
fn the_rate_of_a_link_changes_and_percentages_follow_for_those_that_come() {
    let mut world = World::new(1000);
    let changes = world.roster.set_rate("down", Rate::mbit_s(200)).unwrap();
    world.make(changes);
    assert_eq!(world.engines[0].1.rate(), Rate::mbit_s(200));
    assert!(world.roster.set_rate("down", Rate::mbit_s(200)).unwrap().is_empty());
    assert!(world.roster.set_rate("wan", Rate::mbit_s(1)).unwrap_err().to_string().contains("there is down, up"));
    let place = place("down", None, Gets::Words("share 1%".into()));
    world.set(vec![subscriber("a", "10.0.0.1", vec![place])]);
    let down = world.roster.link("down").unwrap();
    assert_eq!(down.guarantee(down.class("a").unwrap()), Some(Rate::mbit_s(2)));
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
