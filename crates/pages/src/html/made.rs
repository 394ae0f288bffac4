//! How a result was made: command, seed, versions, files with hashes; and the result as JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use maud::{Markup, html};

use super::Source;
use super::text::{slug, time};

/// The list of these facts.
pub fn section(source: &Source<'_>) -> Markup {
    let (result, made) = (source.result, source.result.made.as_ref());
    let from = if result.warmup_ns == 0 { "its start".into() } else { time(result.warmup_ns as f64) };
    let name = format!("{}.{}.json", slug(&result.case), result.world.name());
    let data = format!("data:application/json;base64,{}", BASE64.encode(source.json));
    html! {
        @if let Some(made) = made { pre { (made.command) } "\n" }
        dl.facts {
            "\n" dt { "seed" } dd { (result.seed) } "\n"
            @if result.duration_ns > 0 {
                dt { "a run lasts" } dd { (time(result.duration_ns as f64)) ", measured from " (from) " on" } "\n"
            }
            @if let Some(made) = made {
                dt { "altq" } dd { (made.version) } "\n"
                @if let Some(kernel) = &made.kernel { dt { "kernel" } dd { (kernel) } "\n" }
                @if let Some(offload) = made.offload {
                    dt { "super-packets" } dd { @if offload { "hosts may send them" } @else { "off" } } "\n"
                }
                @for file in &made.files { dt { (file.file) } dd { code { "sha256 " (file.sha256) } } "\n" }
            }
            dt { "raw data" }
            dd {
                a download=(name) href=(data) { (name) }
                " (altq.result/1, " (source.json.len().div_ceil(1000)) " kB, in this page)"
                @if let Some(file) = source.file { "; also beside it: " a href=(file) { (file) } }
            } "\n"
        } "\n"
    }
}
