//! Who may ask for what. To read and to change are two rights.
//!
//! The mode of the socket's file decides who may connect; a connected client may read. The kernel
//! tells who is at the other end (SO_PEERCRED and SO_PEERGROUPS, unix(7)). Root, the user that runs
//! altq, and members of the group that owns the socket may change things as well.

use crate::fault::{Code, Fault};

/// Who is at the other end of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// The number of the process that connected; 0 if it is not known.
    pub pid: i32,
    /// Its user.
    pub uid: u32,
    /// Its groups.
    pub groups: Vec<u32>,
}

/// The right that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// To see what runs.
    Read,
    /// To change what runs.
    Write,
}

/// Who may change things, in addition to root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writers {
    /// The user that runs altq.
    pub owner: u32,
    /// The members of this group.
    pub group: Option<u32>,
}

impl Writers {
    /// True if this peer may change things.
    pub fn include(&self, peer: &Peer) -> bool {
        let member = self.group.is_some_and(|group| peer.groups.contains(&group));
        peer.uid == 0 || peer.uid == self.owner || member
    }

    /// Checks that a peer has a right.
    ///
    /// # Errors
    /// The peer does not have the right. The fault says who has it.
    pub fn check(&self, peer: &Peer, right: Right) -> Result<(), Fault> {
        if right == Right::Read || self.include(peer) {
            return Ok(());
        }
        let message = format!("user {} may read, but not change what runs", peer.uid);
        let help = match self.group {
            Some(group) => format!("root and members of the group {group} may; `altq run --group` chooses the group"),
            None => "root may, and the user that runs altq; `altq run --group` adds a group".to_owned(),
        };
        Err(Fault::new(Code::NotPermitted, message).help(help))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_may_read_and_root_owner_and_group_may_write() {
        let writers = Writers { owner: 200, group: Some(50) };
        for (uid, groups, may) in [
            (0, &[][..], true),
            (200, &[200], true),
            (1000, &[1000, 50], true),
            (1000, &[1000], false),
            (1000, &[], false),
        ] {
            let peer = Peer { pid: 1, uid, groups: groups.to_vec() };
            assert_eq!(writers.check(&peer, Right::Write).is_ok(), may, "{uid} {groups:?}");
            assert_eq!(writers.check(&peer, Right::Read), Ok(()));
        }
        let stranger = Peer { pid: 1, uid: 1000, groups: vec![0] };
        let none = Writers { owner: 0, group: None };
        assert_eq!(none.check(&stranger, Right::Write).unwrap_err().code, Code::NotPermitted);
    }
}
