//! What becomes of packets while nobody shapes: they pass unshaped, or almost all are dropped
//! (docs/service.md).

use altq_config::Link;
use altq_dataplane::{Error as LinkError, Fail};

/// The default exception: the port of ssh, so that an operator is not locked out.
const EXCEPT: u16 = 22;

/// Options of `altq run` about packets that nobody shapes.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Args {
    /// What becomes of packets while nobody shapes them: `open`, they pass unshaped; `closed`,
    /// nothing passes but the ports of --except, ARP and neighbour discovery
    #[arg(long, value_enum, value_name = "HOW", default_value = "open")]
    fail: How,
    /// With --fail closed: ports of TCP and UDP, source or destination, whose packets pass
    /// nevertheless [default: 22]
    #[arg(long, value_name = "PORT,…", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..))]
    except: Vec<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum How {
    Open,
    Closed,
}

impl Args {
    /// True if only the exceptions pass while nobody shapes.
    pub fn is_closed(&self) -> bool {
        self.fail == How::Closed
    }

    /// The options in the form that the data plane takes.
    pub fn fail(&self) -> Fail {
        match self.fail {
            How::Open => Fail::Open,
            How::Closed => Fail::Closed { except: self.ports() },
        }
    }

    /// Why an option does not fit to the others.
    pub fn misplaced(&self) -> Option<String> {
        let lost = !self.except.is_empty() && !self.is_closed();
        lost.then(|| {
            "--except concerns links that fail closed, and these fail open; write --fail closed too".to_owned()
        })
    }

    fn ports(&self) -> Vec<u16> {
        let mut ports = if self.except.is_empty() { vec![EXCEPT] } else { self.except.clone() };
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    /// What becomes of packets while no worker runs, for the log. `loops`: altq itself executes
    /// links; `by_kernel`: the kernel executes some.
    pub fn without_worker(&self, loops: bool, by_kernel: bool) -> String {
        let what = match (loops, self.is_closed()) {
            (false, _) => return "no worker runs, and the kernel shapes on".to_owned(),
            (true, false) => "BYPASS: packets pass unshaped".to_owned(),
            (true, true) => {
                let ports: Vec<String> = self.ports().iter().map(u16::to_string).collect();
                format!("BLOCKED: nothing passes but the ports {}", ports.join(", "))
            }
        };
        if by_kernel { what + " where the kernel does not shape" } else { what }
    }

    /// With `--fail closed`, loops leave the rules that hold packets back. At an end that was asked
    /// for this removes them; with a supervisor, the supervisor does.
    ///
    /// # Errors
    /// [`LinkError::Steering`] if rules cannot be removed.
    pub fn lift(&self, links: &[&Link], supervised: bool) -> Result<(), LinkError> {
        if self.is_closed() && !supervised { altq_dataplane::sweep(links) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_said() {
        let open = Args { fail: How::Open, except: Vec::new() };
        let closed = Args { fail: How::Closed, except: vec![443, 22, 443] };
        assert_eq!(open.without_worker(true, false), "BYPASS: packets pass unshaped");
        assert_eq!(closed.without_worker(true, false), "BLOCKED: nothing passes but the ports 22, 443");
        assert!(closed.without_worker(true, true).ends_with(" where the kernel does not shape"));
        assert_eq!(closed.without_worker(false, true), "no worker runs, and the kernel shapes on");
        assert_eq!(Args { except: Vec::new(), ..closed }.fail(), Fail::Closed { except: vec![22] });
        assert!(Args { except: vec![1], ..open }.misplaced().is_some());
    }
}
