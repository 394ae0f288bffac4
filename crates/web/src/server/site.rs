//! The answers for each path.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use crate::board::Board;
use crate::events::Cut;
use crate::explain::Refused;
use crate::feed::unix_ms;
use crate::frame::Frame;
use crate::http::response::JSON;
use crate::http::{Hosts, Request, Response, Status};
use crate::metrics::Form;
use crate::page::Page;

/// A frame older than this is not shown as current. altq may take 20 s for an answer.
const STALE_MS: u64 = 30_000;

/// All that clients may ask for.
#[derive(Debug)]
pub struct Site {
    board: Arc<Board>,
    page: Page,
    hosts: Hosts,
    /// Whether flows are shown.
    flows: bool,
}

/// How a request is answered.
#[derive(Debug)]
pub enum Answer {
    /// By one response.
    Response(Response),
    /// By events, whole or in parts, until the client goes.
    Events(Cut),
}

impl Site {
    /// A site that shows the board to clients that call the server by one of these names.
    pub fn new(board: Arc<Board>, hosts: Hosts) -> Site {
        Site { board, page: Page::new(), hosts, flows: true }
    }

    /// The same without flows: nobody sees addresses.
    pub fn without_flows(self) -> Site {
        Site { flows: false, ..self }
    }

    /// The latest frame.
    pub fn frame(&self) -> Arc<Frame> {
        self.board.frame()
    }

    /// Answers a client that has connected to `local`.
    pub fn answer(&self, request: &Request, local: IpAddr) -> Answer {
        if !self.hosts.include(&request.host, local) {
            let why = "this server does not have this name; give it with --host";
            return Answer::Response(Response::error(Status::Misdirected, why));
        }
        if request.path != "/" && request.is_foreign() {
            let why = "pages of other sites may not ask this";
            return Answer::Response(Response::error(Status::Forbidden, why));
        }
        Answer::Response(match request.path.as_str() {
            "/" => {
                let policy = Some(self.page.policy.clone());
                Response { policy, ..Response::ok("text/html; charset=utf-8", self.page.body.clone()) }
            }
            "/events" => match request.value("parts").as_deref() {
                None => return Answer::Events(Cut::Whole),
                Some("1") => return Answer::Events(Cut::Parts),
                Some(_) => Response::error(Status::Bad, "parts is 1, or left out"),
            },
            "/stat.json" => self.stat(),
            "/history.json" => self.history(request),
            "/flows.json" => self.flows(request),
            "/explain.json" => self.explain(request),
            "/metrics" => self.metrics(request),
            _ => {
                let why = "there is /, /events, /stat.json, /history.json, /flows.json, /explain.json and /metrics";
                Response::error(Status::NotFound, why)
            }
        })
    }

    fn metrics(&self, request: &Request) -> Response {
        let frame = self.frame();
        if let Some(late) = late(&frame) {
            return late;
        }
        let form = Form::accepted(request.accept.as_deref());
        Response::ok(form.content_type(), frame.metrics(form).clone())
    }

    fn stat(&self) -> Response {
        let frame = self.frame();
        if let Some(late) = late(&frame) {
            return late;
        }
        match (&frame.stat_json, &frame.fault) {
            (Some(json), _) => Response::ok(JSON, json.clone()),
            (None, Some(fault)) => Response::error(Status::Unavailable, &fault.to_string()),
            (None, None) => Response::error(Status::Unavailable, "altq has not been asked yet"),
        }
    }

    /// The flows of a class. Only classes that exist are noted, so what is asked for is bounded.
    fn flows(&self, request: &Request) -> Response {
        if !self.flows {
            return Response::error(Status::NotFound, "flows are not shown here: altq web runs with --no-flows");
        }
        let mut known = self.board.lock();
        let frame = known.frame.clone();
        if let Some(late) = late(&frame) {
            return late;
        }
        let first = || frame.links.first().map(|link| link.status.name.clone());
        let Some(link) = request.value("link").or_else(first) else {
            return Response::error(Status::Unavailable, "altq has not been asked yet");
        };
        let Some(shown) = frame.link(&link) else {
            return Response::error(Status::NotFound, "there is no link of this name");
        };
        let Some(classes) = shown.classes.as_ref().map(|classes| classes.tree.classes()) else {
            return Response::error(Status::Unavailable, "there are no figures of classes now");
        };
        let root = || classes.first().map(|class| class.name.clone());
        let class = request.value("class").or_else(root).unwrap_or_default();
        if !classes.iter().any(|known| known.name == class) {
            return Response::error(Status::NotFound, "the link has no class of this name");
        }
        match known.flows.of(&link, &class, Instant::now()) {
            Some(Ok(json)) => Response::ok(JSON, json),
            Some(Err(why)) => Response::error(Status::Unavailable, &why),
            None => Response::error(Status::Unavailable, "altq is asked for them; ask again in a second"),
        }
    }

    /// Which class a packet gets, and why.
    fn explain(&self, request: &Request) -> Response {
        if !self.flows {
            let why = "rules have addresses, and nobody sees any here: altq web runs with --no-flows";
            return Response::error(Status::NotFound, why);
        }
        let frame = self.frame();
        if let Some(late) = late(&frame) {
            return late;
        }
        if let Some(fault) = &frame.fault {
            return Response::error(Status::Unavailable, &fault.to_string());
        }
        let Some(packet) = request.value("packet") else {
            return Response::error(Status::Bad, "packet= is missing: src=10.1.2.3 dst=192.0.2.1 proto=tcp dport=80");
        };
        // Not under the lock: classes and rules may be many.
        let known = self.board.lock().policy.policy(Instant::now());
        let running = match known {
            Some(Ok(running)) => running,
            Some(Err(why)) => return Response::error(Status::Unavailable, &why),
            None => {
                let why = "altq is asked for its policy; ask again in a second";
                return Response::error(Status::Unavailable, why);
            }
        };
        match running.explain(request.value("link").as_deref(), &packet) {
            Ok(json) => Response::ok(JSON, json.into()),
            Err(Refused::Wrong(why)) => Response::error(Status::Bad, &why),
            Err(Refused::NoLink) => Response::error(Status::NotFound, "the policy has no link of this name"),
        }
    }

    fn history(&self, request: &Request) -> Response {
        let known = self.board.lock();
        let first = || known.frame.links.first().map(|link| link.status.name.clone());
        let Some(link) = request.value("link").or_else(first) else {
            return Response::error(Status::Unavailable, "there is no history yet");
        };
        let Some(past) = known.pasts.get(&link) else {
            return Response::error(Status::NotFound, "no link of this name has a history");
        };
        let now = known.frame.unix_ms;
        let (Some(from), Some(to)) = (moment(request, "from", 0, now), moment(request, "to", u64::MAX, now)) else {
            let why = "from and to are seconds since 1970, or below zero seconds before now";
            return Response::error(Status::Bad, why);
        };
        let class = request.value("class");
        let Some(series) = past.series(&link, class.as_deref(), (from, to)) else {
            return Response::error(Status::NotFound, "the link has no class of this name");
        };
        match serde_json::to_vec(&series) {
            Ok(json) => Response::ok(JSON, json.into()),
            Err(error) => Response::error(Status::Unavailable, &error.to_string()),
        }
    }
}

/// The answer instead of old figures: a collector must not take them for new ones.
fn late(frame: &Frame) -> Option<Response> {
    let late = unix_ms().saturating_sub(frame.unix_ms);
    (late > STALE_MS).then(|| {
        let why = format!("altq has not answered for {} s", late / 1000);
        Response::error(Status::Unavailable, &why)
    })
}

/// A time from the query, in ms since 1970; `None` if it cannot be read. A negative one is relative
/// to now.
fn moment(request: &Request, name: &str, otherwise: u64, now: u64) -> Option<u64> {
    let Some(text) = request.value(name) else { return Some(otherwise) };
    let seconds: i64 = text.parse().ok()?;
    let ms = seconds.unsigned_abs().saturating_mul(1000);
    Some(if seconds < 0 { now.saturating_sub(ms) } else { ms })
}
