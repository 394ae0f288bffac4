//! What is asked of previous hops (RFC 2209, RESV REFRESH): for each of them the merge of what
//! is reserved here for its senders, when it changes and then again and again.

use std::collections::{BTreeMap, BTreeSet};

use super::Node;
use super::event::Event;
use super::state::{LOCAL, MOST_PASSED_ON, Phop, RsbKey, State, Upstream};
use super::timing::{Timer, clamp, spread};
use super::world::World;
use crate::merge;
use crate::wire::{Flow, Flowspec, Hop, Message, RawObject, Resv, ResvTear, Sender, Session, Style, Tspec};

/// The most flow descriptors of a Resv in FF. More go in several messages, so that none becomes
/// larger than an Ethernet frame: 16 of 60 bytes (IPv6) and about 150 bytes beside.
pub(super) const FLOWS: usize = 16;

/// The most bytes of a Resv beside its flow descriptors and what it carries along, with the IP
/// header and INTEGRITY: 224 with IPv6 and SHA-512.
const AROUND: usize = 224;

/// The bytes of a flow descriptor with so many senders of IPv6.
fn descriptor(flow: &Flow) -> usize {
    36 + 24 * flow.filters.len()
}

/// The merge of all requests for a sender, without those that are blockaded (RFC 2205 3.5).
fn merged(state: &State, sender: &Sender) -> Option<Tspec> {
    let of_sender = state.requests.values().filter(|rsb| rsb.wanted.filters.contains(sender));
    let requests: Vec<Tspec> = of_sender.map(|rsb| rsb.wanted.tspec).collect();
    merge::upstream(&requests, state.blockades.get(sender).map(|blockade| &blockade.refused))
}

/// What is to be asked of each previous hop. Senders here have none.
fn wanted(state: &State) -> BTreeMap<Phop, Upstream> {
    let mut all: BTreeMap<Phop, Upstream> = BTreeMap::new();
    let Some(style) = state.style() else {
        return all;
    };
    for (sender, psb) in state.paths.iter().filter(|(_, psb)| psb.previous.interface != LOCAL) {
        let Some(tspec) = merged(state, sender) else {
            continue;
        };
        let nothing = || Upstream { style, flows: Vec::new(), passed_on: Vec::new() };
        let upstream = all.entry(psb.previous).or_insert_with(nothing);
        match upstream.flows.last_mut() {
            Some(flow) if style != Style::Fixed => {
                // A reservation that senders share is the largest of what is asked for each.
                if let Flowspec::ControlledLoad(before) = &flow.flowspec {
                    flow.flowspec = Flowspec::ControlledLoad(merge::merge(before, &tspec));
                }
                flow.filters.push(*sender);
            }
            _ => upstream.flows.push(Flow { flowspec: Flowspec::ControlledLoad(tspec), filters: vec![*sender] }),
        }
    }
    for upstream in all.values_mut() {
        upstream.passed_on = union(state, &senders(&upstream.flows));
    }
    all
}

/// POLICY_DATA and unknown objects of the requests for any of these senders, each one once (RFC
/// 2205 3.10). What would make a Resv too long is left out.
fn union(state: &State, asked: &[Sender]) -> Vec<RawObject> {
    let mut objects: BTreeSet<&RawObject> = BTreeSet::new();
    let mut bytes = 0;
    for wanted in state.requests.values().map(|rsb| &rsb.wanted) {
        if wanted.passed_on.is_empty() || !wanted.filters.iter().any(|sender| asked.contains(sender)) {
            continue;
        }
        for object in wanted.passed_on.iter() {
            if bytes + object.size() <= MOST_PASSED_ON && objects.insert(object) {
                bytes += object.size();
            }
        }
    }
    objects.into_iter().cloned().collect()
}

impl Node {
    /// Asks previous hops for what is reserved here, if that is not what they were asked for last.
    /// What is reserved no more is torn down there (RFC 2205 2.4), unless the path state is gone,
    /// which the previous hop knows, or comes by another hop now: what the old one has times out
    /// (RFC 2205 2.3). Until its path state does, a Path of its may come late, and a tear would
    /// then go to the hop that is in use.
    pub(super) fn sync(&mut self, now: u64, world: &mut World<'_>, session: Session) {
        let Some(state) = self.sessions.get_mut(&session) else {
            return;
        };
        let wanted = wanted(state);
        let before = std::mem::take(&mut state.upstream);
        let mut tears: Vec<(Phop, Style, Vec<Sender>)> = Vec::new();
        for (phop, upstream) in &before {
            let there = wanted.get(phop).map(|upstream| senders(&upstream.flows)).unwrap_or_default();
            let mut gone = senders(&upstream.flows);
            let comes_by = |sender: &Sender| state.paths.get(sender).is_some_and(|psb| psb.previous == *phop);
            gone.retain(|sender| !there.contains(sender) && comes_by(sender));
            if !gone.is_empty() {
                tears.push((*phop, upstream.style, gone));
            }
        }
        let is_new = |phop: &Phop, upstream: &Upstream| before.get(phop).is_none_or(|old| old != upstream);
        let new = wanted.iter().filter(|(phop, upstream)| is_new(phop, upstream));
        let new: Vec<Phop> = new.map(|(phop, _)| *phop).collect();
        let ended: Vec<Phop> = before.keys().filter(|phop| !wanted.contains_key(*phop)).copied().collect();
        state.upstream = wanted;
        for phop in ended {
            self.timers.cancel(Timer::ResvRefresh(session, phop));
        }
        for (phop, style, filters) in tears {
            self.send_resv_tear(session, phop, style, filters);
        }
        for phop in new {
            self.refresh_upstream(now, world, session, phop);
        }
        self.tell_senders(session);
    }

    /// Sends a Resv to a previous hop, and sets the next refresh.
    pub(super) fn refresh_upstream(&mut self, now: u64, world: &mut World<'_>, session: Session, phop: Phop) {
        let Some(state) = self.sessions.get_mut(&session) else {
            return;
        };
        let Some(Upstream { style, flows, mut passed_on }) = state.upstream.get(&phop).cloned() else {
            return;
        };
        // RFC 2205 2.6: a wish for a confirmation goes with the request upstream, once.
        let mut confirm = None;
        let asked = senders(&flows);
        for rsb in state.requests.values_mut() {
            let is_asked = rsb.wanted.filters.iter().any(|sender| asked.contains(sender));
            // A message has room for one wish; requests with the same one go with it.
            if is_asked && (confirm.is_none() || rsb.confirm == confirm) {
                confirm = rsb.confirm.take().or(confirm);
            }
        }
        let interface = self.config.interface(phop.interface);
        let refresh_ms = interface.map_or(30_000, |interface| clamp(interface.refresh_ms));
        let at = now.saturating_add(spread(refresh_ms, (world.random)()));
        self.timers.set(Timer::ResvRefresh(session, phop), at);
        let at = interface.and_then(|interface| Some((interface.own(phop.address)?, interface.mtu)));
        let Some((own, mtu)) = at else {
            return;
        };
        // A message longer than the MTU is not sent, and what is reserved matters more than what is
        // carried along.
        let longest = flows.iter().map(descriptor).max().unwrap_or(1);
        let mut room = (mtu as usize).saturating_sub(AROUND + longest);
        passed_on.retain(|object| {
            let fits = object.size() <= room;
            room -= if fits { object.size() } else { 0 };
            fits
        });
        for flows in flows.chunks((1 + room / longest).min(FLOWS)) {
            let message = Message::Resv(Resv {
                session,
                // The handle is the previous hop's own (RFC 2205 A.2).
                hop: Hop { address: own, handle: phop.handle },
                refresh_ms,
                confirm,
                scope: Vec::new(),
                style,
                flows: flows.to_vec(),
                passed_on: passed_on.clone(),
            });
            self.send(phop.interface, phop.address, &message);
        }
    }

    fn send_resv_tear(&mut self, session: Session, phop: Phop, style: Style, filters: Vec<Sender>) {
        let own = self.config.interface(phop.interface).and_then(|interface| interface.own(phop.address));
        if let Some(own) = own {
            let hop = Hop { address: own, handle: phop.handle };
            for filters in filters.chunks(FLOWS) {
                let filters = filters.to_vec();
                let message = Message::ResvTear(ResvTear { session, hop, scope: Vec::new(), style, filters });
                self.send(phop.interface, phop.address, &message);
            }
        }
    }

    /// Tells what is reserved for senders here, if that has changed.
    fn tell_senders(&mut self, session: Session) {
        let Some(state) = self.sessions.get_mut(&session) else {
            return;
        };
        let mut news: Vec<(Sender, Option<Tspec>)> = Vec::new();
        for (sender, psb) in state.paths.iter().filter(|(_, psb)| psb.previous.interface == LOCAL) {
            let reserved = merged(state, sender);
            if reserved != psb.told {
                news.push((*sender, reserved));
            }
        }
        for (sender, reserved) in &news {
            if let Some(psb) = state.paths.get_mut(sender) {
                psb.told = *reserved;
            }
        }
        for (sender, tspec) in news {
            self.tell(Event::SenderReserved { session, sender, tspec });
        }
    }

    /// The requests of a session that any of these senders is in.
    pub(super) fn requests_for(&self, session: &Session, filters: &[Sender]) -> Vec<RsbKey> {
        let Some(state) = self.sessions.get(session) else {
            return Vec::new();
        };
        let with_any = state.requests.iter().filter(|(_, rsb)| rsb.wanted.filters.iter().any(|s| filters.contains(s)));
        with_any.map(|(key, _)| *key).collect()
    }
}

/// The senders of flow descriptors.
fn senders(flows: &[Flow]) -> Vec<Sender> {
    flows.iter().flat_map(|flow| flow.filters.iter().copied()).collect()
}
