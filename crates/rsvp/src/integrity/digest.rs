//! The INTEGRITY object (RFC 2747 2): flags, key, sequence number, digest.
//!
//! ```text
//! length (2) | class 4 | C-type 1 | flags | 0 | key identifier (6) | sequence number (8) | digest
//! ```
//!
//! The digest is an HMAC (RFC 2104) over the whole message with the checksum and the digest zero.
//! The checksum is then sent as zero (RFC 2747 4.1).

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use sha2::{Sha256, Sha384, Sha512};
use thiserror::Error;

use crate::wire::{HEADER, Header, Reader, Writer, class};

/// Where the digest begins in a message with INTEGRITY: behind both headers, flags, key and number.
const DIGEST_AT: usize = HEADER + 4 + 16;

/// How the digest is computed. RFC 2747 asks for HMAC-MD5; the others are those that its successors
/// propose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// HMAC-MD5, 16 bytes (RFC 2747 2).
    HmacMd5,
    /// HMAC-SHA-256, 32 bytes.
    HmacSha256,
    /// HMAC-SHA-384, 48 bytes.
    HmacSha384,
    /// HMAC-SHA-512, 64 bytes.
    HmacSha512,
}

impl Algorithm {
    /// Bytes of the digest, which is not truncated.
    pub fn length(self) -> usize {
        match self {
            Algorithm::HmacMd5 => 16,
            Algorithm::HmacSha256 => 32,
            Algorithm::HmacSha384 => 48,
            Algorithm::HmacSha512 => 64,
        }
    }
}

/// A key that two neighbours share.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    /// The key identifier, 48 bits.
    pub id: u64,
    /// The algorithm that it is for.
    pub algorithm: Algorithm,
    /// The secret. It is never printed.
    pub secret: Vec<u8>,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({}, {:?})", self.id, self.algorithm)
    }
}

/// What an INTEGRITY object says beside its digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signature {
    /// Its flags. The handshake flag is drawn as the leftmost bit of RFC 2747, and read by others
    /// as the rightmost one; this crate does not rely on it.
    pub flags: u8,
    /// The key identifier.
    pub key_id: u64,
    /// The sequence number.
    pub sequence: u64,
    /// Bytes of the digest.
    pub digest_bytes: usize,
}

/// Why a message is not authentic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum IntegrityError {
    /// The first object is not INTEGRITY.
    #[error("no INTEGRITY")]
    Absent,
    /// The first object is INTEGRITY, and not as RFC 2747 has it.
    #[error("a malformed INTEGRITY")]
    Malformed,
    /// The key is not one of this neighbour's.
    #[error("an unknown key")]
    UnknownKey,
    /// The digest is not the key's.
    #[error("a wrong digest")]
    WrongDigest,
    /// The sequence number was used before, or is too old.
    #[error("a replayed sequence number")]
    Replayed,
    /// The neighbour's sequence number is not known yet: a handshake is under way.
    #[error("a handshake is under way")]
    Handshake,
}

/// Reads the INTEGRITY object of a message. No other object is looked at.
///
/// # Errors
/// [`IntegrityError::Absent`] or [`IntegrityError::Malformed`].
pub fn signature(message: &[u8]) -> Result<Signature, IntegrityError> {
    Header::read(message).map_err(|_| IntegrityError::Malformed)?;
    let head = message.get(HEADER..HEADER + 4).ok_or(IntegrityError::Absent)?;
    if head[2] != class::INTEGRITY {
        return Err(IntegrityError::Absent);
    }
    let length = usize::from(u16::from_be_bytes([head[0], head[1]]));
    let object = message.get(HEADER..HEADER + length).ok_or(IntegrityError::Malformed)?;
    if head[3] != 1 || length <= DIGEST_AT - HEADER || !length.is_multiple_of(4) {
        return Err(IntegrityError::Malformed);
    }
    let mut reader = Reader::new(&object[4..], HEADER + 4);
    let mut fields = || {
        let flags = reader.u8("INTEGRITY")?;
        let _reserved = reader.u8("INTEGRITY")?;
        Ok::<_, crate::wire::WireError>((flags, reader.u48("INTEGRITY")?, reader.u64("INTEGRITY")?))
    };
    let (flags, key_id, sequence) = fields().map_err(|_| IntegrityError::Malformed)?;
    Ok(Signature { flags, key_id, sequence, digest_bytes: length - (DIGEST_AT - HEADER) })
}

/// Checks the digest of a message against a neighbour's keys, in time that does not depend on the
/// digest. The sequence number is not checked.
///
/// # Errors
/// Every [`IntegrityError`] but the last two.
pub fn verify(message: &[u8], keys: &[Key]) -> Result<Signature, IntegrityError> {
    let signature = signature(message)?;
    let key = keys.iter().find(|key| key.id == signature.key_id).ok_or(IntegrityError::UnknownKey)?;
    if signature.digest_bytes != key.algorithm.length() {
        return Err(IntegrityError::Malformed);
    }
    let end = DIGEST_AT + signature.digest_bytes;
    let mut zeroed = message.to_vec();
    let digest = message.get(DIGEST_AT..end).ok_or(IntegrityError::Malformed)?;
    zeroed[2..4].fill(0);
    zeroed[DIGEST_AT..end].fill(0);
    let holds = match key.algorithm {
        Algorithm::HmacMd5 => mac::<Hmac<Md5>>(&key.secret, &zeroed).map(|mac| mac.verify_slice(digest).is_ok()),
        Algorithm::HmacSha256 => mac::<Hmac<Sha256>>(&key.secret, &zeroed).map(|mac| mac.verify_slice(digest).is_ok()),
        Algorithm::HmacSha384 => mac::<Hmac<Sha384>>(&key.secret, &zeroed).map(|mac| mac.verify_slice(digest).is_ok()),
        Algorithm::HmacSha512 => mac::<Hmac<Sha512>>(&key.secret, &zeroed).map(|mac| mac.verify_slice(digest).is_ok()),
    };
    if holds == Some(true) { Ok(signature) } else { Err(IntegrityError::WrongDigest) }
}

/// Puts an INTEGRITY object into a message that has none, behind its header. The flags are 0. None
/// if the message is no message, or if it would have 64 KiB or more.
pub fn sign(message: &[u8], key: &Key, sequence: u64) -> Option<Vec<u8>> {
    let (header, objects) = message.split_at_checked(HEADER)?;
    let length = key.algorithm.length();
    let mut writer = Writer::default();
    writer.slice(header);
    writer.object(class::INTEGRITY, 1, |body| {
        body.u16(0);
        body.u48(key.id);
        body.u64(sequence);
        body.slice(&vec![0; length]);
    });
    writer.slice(objects);
    let mut signed = writer.bytes;
    let total = u16::try_from(signed.len()).ok()?;
    signed[2..4].fill(0);
    signed[6..HEADER].copy_from_slice(&total.to_be_bytes());
    let digest: Vec<u8> = match key.algorithm {
        Algorithm::HmacMd5 => mac::<Hmac<Md5>>(&key.secret, &signed)?.finalize().into_bytes().to_vec(),
        Algorithm::HmacSha256 => mac::<Hmac<Sha256>>(&key.secret, &signed)?.finalize().into_bytes().to_vec(),
        Algorithm::HmacSha384 => mac::<Hmac<Sha384>>(&key.secret, &signed)?.finalize().into_bytes().to_vec(),
        Algorithm::HmacSha512 => mac::<Hmac<Sha512>>(&key.secret, &signed)?.finalize().into_bytes().to_vec(),
    };
    signed.get_mut(DIGEST_AT..DIGEST_AT + length)?.copy_from_slice(&digest);
    Some(signed)
}

/// An HMAC that has read `bytes`. An HMAC takes a key of any length, so this is never None.
fn mac<M: Mac + KeyInit>(secret: &[u8], bytes: &[u8]) -> Option<M> {
    let mut mac = <M as KeyInit>::new_from_slice(secret).ok()?;
    mac.update(bytes);
    Some(mac)
}
