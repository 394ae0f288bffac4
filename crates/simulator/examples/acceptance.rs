//! Runs the whole acceptance test: each figure is a measured value with a limit. Traffic runs
//! through the simulator's `replay`. Prints the worst value of each figure: `cargo run --release -p
//! altq-simulator --example acceptance [PART]`. Exits with 1 if one fails. `cargo test` runs a
//! representative part of them.

#[path = "../tests/acceptance/classic.rs"]
mod classic;
#[path = "../tests/acceptance/delay.rs"]
mod delay;
#[path = "../tests/acceptance/ideal.rs"]
mod ideal;
#[path = "../tests/acceptance/shares.rs"]
mod shares;
#[path = "../tests/acceptance/sharing.rs"]
mod sharing;
#[path = "../tests/acceptance/support.rs"]
mod support;

use std::process::ExitCode;

use support::{Figure, Scope};

type Part = (&'static str, fn() -> Vec<Figure>);

const PARTS: [Part; 11] = [
    ("20-80", || shares::twenty_eighty(Scope::Whole)),
    ("held", || vec![shares::held(Scope::Whole)]),
    ("borrower", || vec![shares::one_borrower(Scope::Whole)]),
    ("agencies", || shares::agencies(Scope::Whole)),
    ("sweep", || shares::sweep(Scope::Whole)),
    ("ticks", || shares::ticks(Scope::Whole)),
    ("trees", || shares::trees(Scope::Whole)),
    ("link-sharing", sharing::scenarios),
    ("classic", || classic::table(Scope::Whole)),
    ("voice", || vec![delay::voice(Scope::Whole)]),
    ("promise", || vec![delay::promise(Scope::Whole)]),
];

fn main() -> ExitCode {
    let wanted = std::env::args().nth(1);
    let (mut passed, mut seen) = (true, false);
    for (name, part) in PARTS {
        if wanted.as_ref().is_some_and(|wanted| wanted != name) {
            continue;
        }
        seen = true;
        for figure in part() {
            println!("{figure}");
            passed &= figure.passed();
        }
        if name == "link-sharing" {
            println!(
                "\nLink shares by flow: the three link-sharing rules of `classic`, on the traffic of the \
                 ancestor-only (AO) experiment\n{}",
                sharing::side_by_side()
            );
        }
    }
    if !seen {
        eprintln!("there is no such part; parts: {}", PARTS.map(|(name, _)| name).join(", "));
        return ExitCode::from(2);
    }
    ExitCode::from(u8::from(!passed))
}
