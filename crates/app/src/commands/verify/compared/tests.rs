use super::*;

const POLICY: &str = "link up { device a  rate 10Mbit/s  scheduler htb
        class voice { rate 1Mbit/s }  class rest { rate 4Mbit/s  default }
        match dport 7 -> voice }
    link down { device a ingress  rate 20Mbit/s  scheduler htb  class all { rate 20Mbit/s  default } }
";

fn policy(text: &str) -> Policy {
    parse_str(text, "test.altq", Language::Native).unwrap_or_else(|error| panic!("{error}"))
}

/// What an altq says that runs this policy, and was started with this file.
fn runs(text: &str, file: &str) -> Runs {
    let link = |name: &str| LinkRuns { name: name.to_owned(), ..LinkRuns::default() };
    let text = ("native".to_owned(), text.to_owned());
    Runs::of(VERSION, text, file.to_owned(), vec![link("up"), link("down")])
}

fn said(found: &[Found]) -> Vec<[&str; 4]> {
    found.iter().map(|one| [&*one.place, &*one.expected, &*one.found, &*one.fix]).collect()
}

/// What differs where a file says this and the policy runs.
fn against(text: &str) -> Vec<Found> {
    let (wanted, now) = (policy(text), policy(POLICY));
    let asked = Asked::File(Path::new("/p.altq"), &wanted);
    let mut found = asked.links_apart(&runs(POLICY, "/p.altq"));
    for link in &now.links {
        found.extend(asked.link(&link.name).into_iter().flat_map(|wanted| asked.apart(wanted, link)));
    }
    found
}

#[test]
fn what_a_file_says_otherwise_is_named_with_what_puts_it_right() {
    assert_eq!(against(POLICY), []);
    let apply = "altq apply /p.altq";
    let rate = against(&POLICY.replace("rate 1Mbit/s", "rate 2Mbit/s"));
    assert_eq!(said(&rate), [["link up, class voice", "rate 2Mbit/s", "rate 1Mbit/s", apply]]);
    let rule = against(&POLICY.replace("dport 7", "dport 8"));
    let rules: Vec<[&str; 3]> = said(&rule).into_iter().map(|[place, asked, found, _]| [place, asked, found]).collect();
    let (seven, eight) = ("match dport 7 -> voice", "match dport 8 -> voice");
    let place = ["link up, rule match dport 7 -> voice", "link up, rule match dport 8 -> voice"];
    assert_eq!(rules, [[place[0], NOTHING, seven], [place[1], eight, NOTHING]]);
    let other = POLICY.replace("rate 1Mbit/s }", "rate 1Mbit/s  default }").replace("4Mbit/s  default", "4Mbit/s");
    let default = against(&other);
    let expected =
        [["link up, class voice", "default", NOTHING, apply], ["link up, class rest", NOTHING, "default", apply]];
    assert_eq!(said(&default), expected);
    let less = against(&POLICY.replace("class voice { rate 1Mbit/s }", "").replace("match dport 7 -> voice", ""));
    assert_eq!((less[0].expected.as_str(), less[0].place.as_str()), (NOTHING, "link up, class voice"));
    let more = against(&POLICY.replace("class voice", "class more { rate 1Mbit/s }  class voice"));
    assert_eq!((more[0].found.as_str(), more[0].place.as_str()), (NOTHING, "link up, class more"));
}

#[test]
fn what_only_a_new_start_changes_says_so() {
    let new = "end `altq run`, then altq run /p.altq";
    for (from, to, what) in [
        ("rate 10Mbit/s", "rate 10Mbit/s  mtu 1400", "its mtu"),
        ("device a  rate", "device b  rate", "its device or path"),
        ("device a  rate", "device a  path kernel  rate", "its device or path"),
        ("rate 10Mbit/s  scheduler htb", "rate 10Mbit/s  overhead ethernet  scheduler htb", "its overhead"),
    ] {
        let found = against(&POLICY.replace(from, to));
        assert!(!found.is_empty(), "{to}");
        for one in found {
            assert!(one.fix.contains(what) && one.fix.contains(new), "{to}: {one:?}");
        }
    }
    let other = against(&POLICY.replace("link down", "link away"));
    let (on, off) = ("it runs on a", "it does not run");
    let fix = "a new start: end `altq run`, then altq run /p.altq";
    let expected = [["link away", on, off, fix], ["link down", "no link of this name", "it runs", fix]];
    assert_eq!(said(&other), expected);
    // What was not chosen need not run.
    let mut only = runs(POLICY, "/p.altq");
    only.links.truncate(1);
    let (all, path) = (policy(POLICY), Path::new("/p.altq"));
    assert_eq!(Asked::File(path, &all).links_apart(&only).len(), 1);
    only.only = Some("up".to_owned());
    assert_eq!(Asked::File(path, &all).links_apart(&only), []);
}

/// A rate that was set while altq runs is the only thing that can differ from what was applied.
#[test]
fn a_rate_that_was_set_is_found_and_set_back() {
    let wanted = policy(POLICY);
    let mut now = wanted.links[0].clone();
    now.spec.rate = altq_engine::units::Rate::bit_s(5_000_000);
    let asked = Asked::Applied("/p.altq", &wanted);
    let found = asked.apart(&wanted.links[0], &now);
    assert_eq!(said(&found), [["link up", "rate 10Mbit/s", "rate 5Mbit/s", "altq link set up rate 10Mbit/s"]]);
    assert_eq!(asked.links_apart(&runs(POLICY, "/p.altq")), []);
}

#[test]
fn the_file_of_the_start_is_compared_with_what_was_applied() {
    let path = std::env::temp_dir().join(format!("altq-verify-{}.altq", std::process::id()));
    let file = path.to_str().unwrap();
    let (of_file, now) = (runs(POLICY, file), policy(POLICY));
    fs::write(&path, format!("# Another comment.\n{POLICY}")).unwrap();
    assert_eq!(super::file(&of_file, &now), []);
    fs::write(&path, POLICY.replace("rate 1Mbit/s", "rate 3Mbit/s")).unwrap();
    let found = super::file(&of_file, &now);
    assert_eq!(said(&found)[0][..3], ["link up, class voice", "rate 3Mbit/s", "rate 1Mbit/s"]);
    assert!(found[0].check == "file" && found[0].fix.starts_with("altq save"), "{found:?}");
    // A new start would run one link more, and would not run one that runs.
    let more = "link more { device b  rate 1Mbit/s  scheduler fifo  class all { default } }";
    fs::write(&path, format!("{}{more}", POLICY.replace("link down", "link away"))).unwrap();
    let found = super::file(&of_file, &now);
    let places: Vec<[&str; 2]> = said(&found).into_iter().map(|[place, _, found, _]| [place, found]).collect();
    assert_eq!(places, [["link down", "it runs"], ["link away", "it does not run"], ["link more", "it does not run"]]);
    let only = Runs { only: Some("up".to_owned()), links: vec![of_file.links[0].clone()], ..of_file.clone() };
    assert_eq!(super::file(&only, &now), []);
    fs::write(&path, "link up { rate }").unwrap();
    let found = super::file(&of_file, &now);
    assert_eq!((found.len(), found[0].place.as_str()), (1, &*format!("file {file}")));
    fs::remove_file(&path).unwrap();
    assert_eq!(super::file(&of_file, &now).len(), 1);
}

#[test]
fn another_version_is_a_difference() {
    assert_eq!(version(&runs(POLICY, ""), 0), None);
    // This very program.
    assert_eq!(version(&runs(POLICY, ""), std::process::id() as i32), None);
    let old = Runs { version: "0.0.9".to_owned(), ..runs(POLICY, "") };
    let found = version(&old, 0).unwrap();
    assert_eq!((found.expected, found.found), (format!("version {VERSION}"), "version 0.0.9".to_owned()));
    assert_eq!(older().check, "version");
}

#[test]
fn a_link_that_is_not_shaped_is_said_with_its_reason() {
    let link = |state: &str, reason: Option<&str>| LinkStatus {
        name: "up".to_owned(),
        path: "nfqueue".to_owned(),
        state: state.to_owned(),
        since_s: 1,
        reason: reason.map(str::to_owned),
        drift: Vec::new(),
        set_by_clients: 0,
    };
    assert_eq!(not_shaped(&link("shaping", None)), None);
    let found = not_shaped(&link("bypass", Some("the worker was killed"))).unwrap();
    assert_eq!(found.found, "BYPASS: packets pass unshaped: the worker was killed");
    assert_eq!(not_shaped(&link("blocked", None)).unwrap().found, "BLOCKED: packets do not pass");
}

#[test]
fn a_detached_link_stands_where_the_policy_says() {
    let policy = policy(POLICY);
    let link = &policy.links[0];
    let stands = |interface: &str, ingress| {
        let (link, interface) = ("up".to_owned(), interface.to_owned());
        Detached { link, interface, ingress }
    };
    assert_eq!(detached(link, Some(&stands("a", false)), "x"), None);
    let found = detached(link, Some(&stands("a", true)), "x").unwrap();
    assert_eq!((found.expected.as_str(), found.found.as_str()), ("it stands on a", "it stands on a ingress"));
    assert_eq!(detached(link, None, "x").unwrap().found, "it does not stand");
}

#[test]
fn what_a_link_has_set_up_is_as_altq_says_it() {
    let steering = altq_control::runs::Steering {
        firewall: "nft".to_owned(),
        interface: "a".to_owned(),
        ingress: true,
        port: false,
        queue: 24_000,
        owner: 5,
        dscp: vec![10],
        except: Some(vec![22]),
    };
    let link = LinkRuns { steering: Some(steering.clone()), ..LinkRuns::default() };
    let steered = set_up(&link).steered.unwrap();
    assert_eq!((steered.firewall, steered.owner, steered.steer.queue), (Firewall::Nft, 5, 24_000));
    assert_eq!(steered.steer.fail, Fail::Closed { except: vec![22] });
    let open = altq_control::runs::Steering { except: None, firewall: "iptables".to_owned(), ..steering };
    let steered = set_up(&LinkRuns { steering: Some(open), ..LinkRuns::default() }).steered.unwrap();
    assert_eq!((steered.firewall, steered.steer.fail), (Firewall::Iptables, Fail::Open));
}
