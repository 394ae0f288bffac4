//! Gives up what a process no longer needs once everything is open: its user, capabilities, files,
//! and system calls.
//!
//! These rights belong to threads, and later threads inherit them. So this comes before the loops
//! are started. What is given up cannot be got back.

use landlock::{ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetError, RulesetStatus, Scope};
use rustix::process::{
    Gid, Pid, Resource, Rlimit, Signal, Uid, getppid, getrlimit, set_parent_process_death_signal, setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_keep_capabilities, set_no_new_privs,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use crate::error::Error;

mod calls;

/// What a process still needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Verdicts on packets: the kernel wants CAP_NET_ADMIN of whoever sends a message about its
    /// queues (`nfnetlink_rcv` of net/netfilter/nfnetlink.c).
    pub verdicts: bool,
    /// Qdiscs of the kernel: CAP_NET_ADMIN as well, and new sockets to ask for them.
    pub qdiscs: bool,
    /// Loops with real-time priority: a limit that lets them have it, or else CAP_SYS_NICE.
    pub realtime: bool,
}

/// Who a process becomes: the numbers of a user and of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// The user.
    pub user: u32,
    /// The group; there are no others.
    pub group: u32,
}

/// Confines the calling thread, and those that it starts: they are `user`, if there is one; they
/// have no capability but those in `needs`, open no file and start no program. A system call that
/// does either kills the process, and one that altq does not need is answered with ENOSYS. Returns
/// what this host could not do, a sentence each.
///
/// From now on the kernel kills the process, even a stopped one, when the thread ends that has
/// started it. `parent`: the process of that thread.
///
/// # Errors
/// [`Error::NotPermitted`] if the process cannot become the user, [`Error::Io`] if capabilities
/// cannot be given up or the parent has ended.
pub fn confine(user: Option<User>, needs: Needs, parent: Option<Pid>) -> Result<Vec<String>, Error> {
    let mut notes = Vec::new();
    // The loops run before others without a capability then (nice -10, which this limit counts as
    // 30; and the lowest real-time priority).
    allow(Resource::Nice, 30);
    let realtime = allow(Resource::Rtprio, 1);
    if let Some(user) = user {
        become_user(user)?;
    }
    let mut kept = CapabilitySet::empty();
    kept.set(CapabilitySet::NET_ADMIN, needs.verdicts || needs.qdiscs);
    kept.set(CapabilitySet::SYS_NICE, needs.realtime && !realtime);
    keep(kept)?;
    // Not before: a change of the user undoes it.
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        notes.push(format!("it may outlive its supervisor while it is stopped ({error})"));
    }
    // Perhaps it has ended before it could be noticed.
    if getppid() != parent {
        return Err(Error::Io { what: "the supervisor", source: rustix::io::Errno::SRCH.into() });
    }
    match no_files() {
        Ok(RulesetStatus::NotEnforced) => notes.push("this kernel has no Landlock".to_owned()),
        Ok(_) => {}
        Err(error) => notes.push(format!("Landlock is not used ({error})")),
    }
    // Last: it forbids the calls above.
    notes.extend(calls::forbid(needs).err());
    Ok(notes)
}

/// Gives up all capabilities of the calling thread, and of those that it starts, but CAP_NET_RAW.
/// It becomes `user`, if there is one.
///
/// # Errors
/// As [`confine`].
pub fn keep_raw_sockets(user: Option<User>) -> Result<(), Error> {
    if let Some(user) = user {
        become_user(user)?;
    }
    keep(CapabilitySet::NET_RAW)
}

/// Gives up all capabilities but some.
fn keep(kept: CapabilitySet) -> Result<(), Error> {
    let failed = |error: rustix::io::Errno| Error::of("giving capabilities up", error.into());
    let permitted = capabilities(None).map_err(failed)?.permitted & kept;
    let sets = CapabilitySets { effective: permitted, permitted, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).map_err(failed)?;
    set_no_new_privs(true).map_err(failed)
}

/// Raises a limit to `least`. False if that is not permitted (CAP_SYS_RESOURCE).
fn allow(what: Resource, least: u64) -> bool {
    let now = getrlimit(what);
    let enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= least);
    let maximum = if enough(now.maximum) { now.maximum } else { Some(least) };
    enough(now.current) || setrlimit(what, Rlimit { current: Some(least), maximum }).is_ok()
}

/// Becomes a user, and keeps the capabilities for now.
fn become_user(user: User) -> Result<(), Error> {
    let failed = |error: rustix::io::Errno| Error::NotPermitted {
        what: "becoming another user",
        right: "CAP_SETUID and CAP_SETGID",
        source: error.into(),
    };
    let (uid, gid) = (Uid::from_raw(user.user), Gid::from_raw(user.group));
    set_keep_capabilities(true).map_err(failed)?;
    set_thread_groups(&[]).map_err(failed)?;
    set_thread_res_gid(gid, gid, gid).map_err(failed)?;
    set_thread_res_uid(uid, uid, uid).map_err(failed)
}

/// Forbids all files, TCP, and sockets and signals beyond this process.
fn no_files() -> Result<RulesetStatus, RulesetError> {
    // Of what this kernel does not know, the crate leaves out.
    let abi = ABI::V6;
    let rules = Ruleset::default()
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .scope(Scope::from_all(abi))?;
    Ok(rules.create()?.restrict_self()?.ruleset)
}

#[cfg(test)]
mod tests;
