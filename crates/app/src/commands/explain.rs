//! `altq explain`: which class a packet gets, by which rule; or how many packets of a capture each
//! rule decides about.

use std::path::PathBuf;

use altq_config::diagnostic::Sources;
use altq_config::explain::{Explained, Explainer, Place, Rules};
use altq_config::{Link, Packet, Policy};

#[cfg(feature = "experiments")]
use crate::captured;
use crate::exit::Exit;
use crate::output;
use crate::policy::{PolicyFile, print_findings};

/// Options of `altq explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  altq explain office.altq --packet 'src=10.1.2.3 dst=192.0.2.1 proto=tcp sport=40000 dport=80'
  altq explain office.altq --packet 'src=2001:db8::7 dst=2001:db8::1 proto=udp dport=53 dscp=ef'

Fields: src, dst, proto, sport, dport, dscp, ecn, tos, tcp-flags, length, mark, vlan, interface,
spi, flow-label, as in rules; and link")]
pub struct Args {
    #[command(flatten)]
    policy: PolicyFile,
    /// A packet: its fields as KEY=VALUE with spaces between them
    #[arg(long, value_name = "FIELDS")]
    #[cfg_attr(feature = "experiments", arg(required_unless_present = "capture", conflicts_with = "capture"))]
    #[cfg_attr(not(feature = "experiments"), arg(required = true))]
    packet: Option<String>,
    /// Packets of a capture (pcap, pcapng): which rules decide about how many of them, and which
    /// about none
    #[cfg(feature = "experiments")]
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Name of the link, if the policy has several and the packet names none
    #[arg(long, value_name = "NAME")]
    link: Option<String>,
    /// Prints JSON (altq.explain/1; of a capture altq.explain_capture/1)
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let mut texts = Sources::default();
    let packet = match &args.packet {
        Some(text) => {
            let source = texts.add(PathBuf::from("--packet"), text.clone());
            match Packet::read(&texts, source) {
                Ok(packet) => Some(packet),
                Err(errors) => {
                    print_findings(&errors, &texts, true);
                    return Ok(Exit::Usage);
                }
            }
        }
        None => None,
    };
    let Some(policy) = args.policy.load() else { return Ok(Exit::Usage) };
    let named = packet.as_ref().and_then(Packet::link);
    let link = match chosen(&policy, args.link.as_deref(), named) {
        Ok(link) => link,
        Err(why) => {
            eprintln!("altq explain: {why}");
            return Ok(Exit::Usage);
        }
    };
    let rules = Rules::new(link);
    let explainer = Explainer::new(&policy.sources, link, &rules);
    match packet {
        Some(packet) => {
            let explained = explainer.packet(&packet);
            if !explained.assumed.is_empty() {
                let assumed = explained.assumed.join(", ");
                eprintln!("altq explain: rules look at more than the packet says; taken are: {assumed}");
            }
            if args.json {
                output::print_json(&explained)?;
            } else {
                output::print(&report(&explained))?;
            }
            Ok(Exit::Ok)
        }
        None => capture(args, &explainer),
    }
}

/// The link that is meant.
fn chosen<'a>(policy: &'a Policy, option: Option<&str>, named: Option<&str>) -> Result<&'a Link, String> {
    let name = match (option, named) {
        (Some(option), Some(named)) if option != named => {
            return Err(format!("--link says `{option}` and the packet `{named}`"));
        }
        (option, named) => option.or(named),
    };
    let names = || policy.links.iter().map(|link| link.name.as_str()).collect::<Vec<_>>().join(", ");
    match (name, &policy.links[..]) {
        (None, [link]) => Ok(link),
        (None, links) => Err(format!("the policy has {} links; choose one with --link: {}", links.len(), names())),
        (Some(name), _) => {
            policy.link(name).ok_or_else(|| format!("no link `{name}` in this policy; there is {}", names()))
        }
    }
}

/// The report for people.
fn report(explained: &Explained<'_>) -> String {
    let place = |place: &Place<'_>| format!("{}:{}: {}", place.file, place.line, place.text);
    let mut out = match explained.class {
        Some(class) => format!("class {class} of link {}\n", explained.link),
        None => format!("no class of link {}: the packet is dropped\n", explained.link),
    };
    out += &match (&explained.rule, explained.default) {
        (Some(rule), _) => format!("  rule       {}\n", place(rule)),
        (None, true) => "  rule       none matches: the default class\n".to_owned(),
        (None, false) => "  rule       none matches, and there is no default class\n".to_owned(),
    };
    for rule in &explained.shadowed {
        out += &format!("  later      {}\n", place(rule));
    }
    if !explained.shadowed.is_empty() {
        out += "             (would match as well, but is tried later)\n";
    }
    if explained.limits.is_empty() {
        return out;
    }
    let mut rows = vec![["class", "guarantee", "ceiling"].map(str::to_owned).to_vec()];
    for limits in &explained.limits {
        let guarantee = match limits.guaranteed_bit_s {
            0 => "-".to_owned(),
            rate => output::rate(rate),
        };
        rows.push(vec![limits.class.to_owned(), guarantee, output::rate(limits.ceiling_bit_s)]);
    }
    out.push('\n');
    let width = output::width().map(|width| width.saturating_sub(2));
    output::table_within(&rows, width).lines().fold(out, |out, line| out + "  " + line + "\n")
}

#[cfg(feature = "experiments")]
fn capture(args: &Args, explainer: &Explainer<'_>) -> anyhow::Result<Exit> {
    let Some(path) = &args.capture else { return Ok(Exit::Usage) };
    let Some(capture) = captured::read("explain", path)? else { return Ok(Exit::Usage) };
    let counted = explainer.packets(capture.frames.iter().map(|frame| &frame.key));
    if args.json {
        output::print_json(&counted)?;
        return Ok(Exit::Ok);
    }
    let mut rows = vec![["rule", "packets", "bytes", "of bytes"].map(str::to_owned).to_vec()];
    let mut row = |name: String, packets: u64, bytes: u64| {
        rows.push(vec![name, packets.to_string(), bytes.to_string(), output::percent(bytes, counted.bytes)]);
    };
    for rule in &counted.rules {
        row(format!("{}:{}: {}", rule.rule.file, rule.rule.line, rule.rule.text), rule.packets, rule.bytes);
    }
    let rest = match counted.rest.class {
        Some(class) => format!("no rule: {class} (default)"),
        None => "no rule: dropped".to_owned(),
    };
    row(rest, counted.rest.packets, counted.rest.bytes);
    row("all".to_owned(), counted.packets, counted.bytes);
    output::print(&output::table_within(&rows, output::width()))?;
    Ok(Exit::Ok)
}

#[cfg(not(feature = "experiments"))]
fn capture(_: &Args, _: &Explainer<'_>) -> anyhow::Result<Exit> {
    Ok(Exit::Usage)
}
