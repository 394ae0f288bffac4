//! What runs, as the process that runs it knows it: what `verify` is answered with. Whoever asks
//! compares it with the policy, and with what the host shows (docs/verify.md).

use serde::{Deserialize, Serialize};

/// What runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Runs {
    /// The name of this form of the document.
    pub schema: String,
    /// The version of the program that runs.
    pub version: String,
    /// The language of the policy that was applied last.
    pub language: String,
    /// Its text.
    pub text: String,
    /// The file that altq was started with, as a whole path.
    pub file: String,
    /// The only link of the policy that was to run, if one was chosen.
    pub only: Option<String>,
    /// The links, in the policy's order.
    pub links: Vec<LinkRuns>,
}

/// What runs of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LinkRuns {
    /// Its name.
    pub name: String,
    /// Its rate: the policy's, unless a client has set another one.
    pub rate_bit_s: u64,
    /// What its loop has otherwise than it was told, a sentence each. Without a loop nothing.
    pub differs: Vec<String>,
    /// Why it is not known what its loop has; null where it is, and where it has no loop.
    pub silent: Option<String>,
    /// Classes that the policy does not have: those of subscribers and reservations.
    pub beside: u64,
    /// The rules of the firewall that hand packets over; null where there are none.
    pub steering: Option<Steering>,
    /// The programs that keep frames from the kernel's own stack.
    pub guards: Vec<Guard>,
    /// Its interfaces, as they were set when it began.
    pub devices: Vec<Device>,
}

/// Rules of the firewall that hand packets to a queue of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Steering {
    /// `nft` or `iptables`.
    pub firewall: String,
    /// The interface.
    pub interface: String,
    /// True for what comes in at it.
    pub ingress: bool,
    /// True if it was a port of a bridge.
    pub port: bool,
    /// The number of the queue.
    pub queue: u16,
    /// The number of the netlink socket that listens there.
    pub owner: u32,
    /// Every DSCP that the rules may write.
    pub dscp: Vec<u8>,
    /// The ports whose packets pass while nobody listens, if all others do not; null where all
    /// pass.
    pub except: Option<Vec<u16>>,
}

/// A program at the ingress hook of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Guard {
    /// The interface.
    pub interface: String,
    /// The program's name, as the kernel lists it.
    pub program: String,
}

/// How an interface was set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Packets that its own queue holds (txqueuelen); null where the kernel does not say it.
    pub queue_length: Option<u32>,
    /// Its offloads, by ethtool's words; those that it does not tell are left out.
    pub offloads: Vec<(String, bool)>,
}

impl Runs {
    /// A document about these links of a policy.
    pub fn of(version: &str, (language, text): (String, String), file: String, links: Vec<LinkRuns>) -> Runs {
        let version = version.to_owned();
        Runs { schema: "altq.runs/1".to_owned(), version, language, text, file, only: None, links }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_reads_back_and_later_fields_do_no_harm() {
        let steering = Steering {
            firewall: "nft".to_owned(),
            interface: "a".to_owned(),
            ingress: false,
            port: false,
            queue: 24_000,
            owner: 7,
            dscp: vec![10],
            except: Some(vec![22]),
        };
        let offloads = vec![("gso".to_owned(), true)];
        let device = Device { name: "a".to_owned(), queue_length: Some(1000), offloads };
        let link = LinkRuns {
            name: "up".to_owned(),
            rate_bit_s: 1_000_000,
            steering: Some(steering),
            devices: vec![device],
            ..LinkRuns::default()
        };
        let runs = Runs::of("1.2.3", ("native".to_owned(), "link …".to_owned()), "/p.altq".to_owned(), vec![link]);
        let text = serde_json::to_string(&runs).unwrap();
        assert!(text.starts_with(r#"{"schema":"altq.runs/1","version":"1.2.3","language":"native","#), "{text}");
        assert!(text.contains(r#""offloads":[["gso",true]]"#), "{text}");
        let later = text.replacen("{\"schema\"", "{\"more\":1,\"schema\"", 1);
        assert_eq!(serde_json::from_str::<Runs>(&later).unwrap(), runs);
    }
}
