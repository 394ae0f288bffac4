//! The native language: policies, and the links that they stand for.

use altq_config::{Device, Language, Policy, parse_str};
use altq_engine::classify::{Field, Values};
use altq_engine::settings::Limit;
use altq_engine::spec::{ROOT, Regulator};
use altq_engine::units::Rate;

fn parse(text: &str) -> Policy {
    parse_str(text, "test.altq", Language::Native).unwrap_or_else(|failed| panic!("{failed}"))
}

#[test]
fn the_example_of_the_readme() {
    let policy = parse(
        r#"
        set offices { 10.1.0.0/16 10.2.0.0/16 2001:db8:1::/48 }
        link wan {
            device    eth0
            rate      100Mbit/s
            overhead  ethernet              # or 44 bytes atm
            scheduler cbq

            class voice   { share 5%   priority 7   ceiling 10Mbit/s  borrow }
            class agency1 { share 50%  borrow
                class web  { share 30%  borrow  queue drop_head { limit 64000bytes } }
                class bulk { rate 20 Mbit/s  borrow }
            }
            class rest    { share 45%  borrow  default }

            match dscp ef,va                                 -> voice
            match src offices,!10.1.7.0/24 proto tcp dport 80,443,8000-8080 -> web
        }
        "#,
    );
    let link = &policy.links[0];
    let names: Vec<&str> = link.classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!(names, ["wan", "voice", "agency1", "web", "bulk", "rest"]);
    let parents: Vec<u32> = link.spec.classes.iter().map(|class| class.parent).collect();
    assert_eq!(parents, [ROOT, ROOT, ROOT, 2, 2, ROOT]);
    let rates: Vec<Rate> = (0..6).map(|class| link.guarantee(class).unwrap()).collect();
    assert_eq!(rates, [100, 5, 50, 30, 20, 45].map(Rate::mbit_s));
    assert_eq!(link.device, Some(Device::Interface { name: "eth0".into(), ingress: false }));
    assert_eq!(link.spec.regulator, Regulator::Auto);
    assert_eq!(link.spec.overhead.bytes, 38);
    assert_eq!(link.spec.default, Some(5));
    let voice = &link.spec.classes[1].settings;
    assert_eq!(
        (voice.int("priority"), voice.rate("ceiling"), voice.flag("borrow")),
        (Some(7), Some(Rate::mbit_s(10)), true)
    );
    let web = link.spec.classes[3].queue.as_ref().unwrap();
    assert_eq!((web.name, web.limit), ("drop_head", Limit::Bytes(64000)));

    let rules = &link.spec.rules.rules;
    assert_eq!(rules.len(), 2);
    assert_eq!(rules[0].class, 1);
    assert_eq!(rules[0].terms[0].values, Values::Ranges(vec![(46, 46), (44, 44)]));
    let fields: Vec<(Field, bool)> = rules[1].terms.iter().map(|term| (term.field, term.negated)).collect();
    assert_eq!(fields, [(Field::Src, false), (Field::Src, true), (Field::Proto, false), (Field::DstPort, false)]);
    let Values::Addresses(offices) = &rules[1].terms[0].values else { panic!() };
    assert_eq!(offices.len(), 3);
    assert_eq!((offices[0].bits, offices[0].mask, offices[0].v6), (0x0a01_0000, 0xffff_0000, false));
    assert!(offices[2].v6);
    assert_eq!(offices[2].mask, u128::MAX << 80);
    assert_eq!(rules[1].terms[3].values, Values::Ranges(vec![(80, 80), (443, 443), (8000, 8080)]));
}

/// The words of a rate that adapts; the target has a default.
#[test]
fn a_rate_that_adapts() {
    let read = |inside: &str| {
        let text = format!("link l {{ rate 20Mbit/s adapt {{ {inside} }} scheduler cbq class a {{ default }} }}");
        let policy = altq_config::parse_str(&text, "t", altq_config::Language::Native);
        policy.unwrap_or_else(|failed| panic!("{failed}")).links.remove(0).adapt.unwrap()
    };
    let whole = read("from 5Mbit/s to 60Mbit/s  target 15ms\n reflectors { 1.1.1.1\n 2620:fe::9 }");
    assert_eq!((whole.from, whole.to, whole.target), (Rate::mbit_s(5), Rate::mbit_s(60), 15_000_000));
    let reflectors: Vec<std::net::IpAddr> = vec!["1.1.1.1".parse().unwrap(), "2620:fe::9".parse().unwrap()];
    assert_eq!(whole.reflectors, reflectors);
    // In any order, and without a target.
    assert_eq!(read("reflectors { 1.1.1.1 2620:fe::9 } from 5Mbit/s to 60Mbit/s").target, 30_000_000);
}
