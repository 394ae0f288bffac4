//! The acceptance figures through `replay`: a representative part of them, so that `cargo test`
//! stays short. All of them: `cargo run --release -p altq-simulator --example acceptance`. Expected
//! values come from the policy, from the ideal function (`ideal`, written from the rules), from
//! arithmetic by hand, or from published tables; never from altq's own output.

mod classic;
mod delay;
mod ideal;
mod shares;
mod sharing;
mod support;

use support::{Figure, Scope};

fn check(figures: impl IntoIterator<Item = Figure>) {
    let mut failed = false;
    for figure in figures {
        println!("{figure}");
        failed |= !figure.passed();
    }
    assert!(!failed, "see above");
}

#[test]
fn twenty_eighty() {
    check(shares::twenty_eighty(Scope::Part));
}

#[test]
fn held_to_its_rate() {
    check([shares::held(Scope::Part)]);
}

#[test]
fn one_borrower() {
    check([shares::one_borrower(Scope::Part)]);
}

#[test]
fn agencies() {
    check(shares::agencies(Scope::Part));
}

#[test]
fn sweep() {
    check(shares::sweep(Scope::Part));
}

#[test]
fn ticks() {
    check(shares::ticks(Scope::Part));
}

#[test]
fn trees() {
    check(shares::trees(Scope::Part));
}

#[test]
fn link_sharing() {
    check(sharing::scenarios());
    println!("{}", sharing::side_by_side());
}

#[test]
fn classic_cases() {
    check(classic::table(Scope::Part));
}

#[test]
fn voice() {
    check([delay::voice(Scope::Part)]);
}

#[test]
fn promise() {
    check([delay::promise(Scope::Part)]);
}
