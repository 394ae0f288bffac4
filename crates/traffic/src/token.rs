//! The secret that client and server share, and the proofs made with it. It is never sent: each
//! side proves that it knows it by an HMAC-SHA256 (RFC 2104, FIPS 180-4) over fresh random numbers
//! of both.

use std::fmt;

use ctutils::CtEq;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::error::{Doing, Error};

/// Bytes of a random number in the handshake.
pub const NONCE: usize = 16;

/// Bytes of a proof on the wire: half of an HMAC-SHA256 (RFC 2104, 5).
pub const TAG: usize = 16;

/// The fewest characters of a token.
pub const LEAST: usize = 8;

/// The most characters of a token.
const MOST: usize = 1024;

/// The shared secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Token {
    /// A token from its text, without white space around it.
    ///
    /// # Errors
    /// [`Error::Wrong`] if it is too short or too long.
    pub fn new(text: &str) -> Result<Token, Error> {
        let text = text.trim();
        match text.chars().count() {
            0..LEAST => Err(Error::Wrong(format!("a token has at least {LEAST} characters"))),
            LEAST..=MOST => Ok(Token(text.into())),
            _ => Err(Error::Wrong(format!("a token has at most {MOST} characters"))),
        }
    }

    /// A token of 128 random bits.
    ///
    /// # Errors
    /// That of getrandom(2).
    pub fn random() -> Result<Token, Error> {
        Ok(Token(hex(&random::<16>()?)))
    }

    /// Its text, to be shown to the user.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The proofs and the session's key that follow from these random numbers of both sides.
    pub fn secrets(&self, client: &[u8; NONCE], server: &[u8; NONCE]) -> Secrets {
        let of = |what: &[u8]| digest(self.0.as_bytes(), &[b"altq traffic 1", what, client, server]);
        Secrets { client: of(b"client"), server: of(b"server"), session: Key(of(b"session")) }
    }
}

/// What both sides compute in a handshake.
#[derive(Clone)]
pub struct Secrets {
    /// The client's proof.
    client: [u8; 32],
    /// The server's proof.
    server: [u8; 32],
    /// The key for all further proofs of the session.
    pub session: Key,
}

impl Secrets {
    /// The client's proof, in hexadecimal digits.
    pub fn client(&self) -> String {
        hex(&self.client)
    }

    /// The server's proof, in hexadecimal digits.
    pub fn server(&self) -> String {
        hex(&self.server)
    }

    /// True if `shown` is the client's proof. Takes the same time for any text of its length.
    pub fn is_client(&self, shown: &str) -> bool {
        same(&self.client, shown)
    }

    /// True if `shown` is the server's proof. Takes the same time for any text of its length.
    pub fn is_server(&self, shown: &str) -> bool {
        same(&self.server, shown)
    }
}

/// A key for short proofs.
#[derive(Clone, Copy)]
pub struct Key([u8; 32]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Key {
    /// A random key.
    ///
    /// # Errors
    /// That of getrandom(2).
    pub fn random() -> Result<Key, Error> {
        Ok(Key(random()?))
    }

    /// A proof of `parts`.
    pub fn tag(&self, parts: &[&[u8]]) -> [u8; TAG] {
        let mut tag = [0; TAG];
        tag.iter_mut().zip(digest(&self.0, parts)).for_each(|(to, from)| *to = from);
        tag
    }

    /// True if `tag` proves `parts`. Takes the same time whether it does or not.
    pub fn proves(&self, parts: &[&[u8]], tag: &[u8; TAG]) -> bool {
        equal(&self.tag(parts), tag)
    }
}

/// HMAC-SHA256 of `parts`. Each part is preceded by its length, so that different lists of parts
/// never give the same bytes.
fn digest(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    // HMAC takes keys of any length.
    let Ok(mut mac) = <Hmac<Sha256> as KeyInit>::new_from_slice(key) else { return [0; 32] };
    for part in parts {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// Compares in constant time, so that the time does not reveal where they differ.
fn equal(a: &[u8], b: &[u8]) -> bool {
    a.ct_eq(b).to_bool()
}

fn same(own: &[u8], shown: &str) -> bool {
    equal(hex(own).as_bytes(), shown.as_bytes())
}

/// Random bytes from the kernel.
///
/// # Errors
/// That of getrandom(2).
pub fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        let rest = bytes.get_mut(filled..).unwrap_or_default();
        filled += rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty()).doing(|| "random numbers")?;
    }
    Ok(bytes)
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Bytes from exactly `2 * N` hexadecimal digits; `None` for any other text.
pub fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let [high, low] = pair else { return None };
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hmac_is_that_of_the_rfc() {
        // RFC 4231, 4.3 (test case 2), without the lengths that `digest` puts in front.
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(b"Jefe").unwrap();
        mac.update(b"what do ya want for nothing?");
        let code: [u8; 32] = mac.finalize().into_bytes().into();
        assert_eq!(hex(&code), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    }

    #[test]
    fn both_sides_agree_and_nobody_else() {
        let token = Token::new(" a good secret\n").unwrap();
        let (client, server) = ([1; NONCE], [2; NONCE]);
        let (ours, theirs) =
            (token.secrets(&client, &server), Token::new("a good secret").unwrap().secrets(&client, &server));
        assert!(ours.is_client(&theirs.client()) && ours.is_server(&theirs.server()));
        assert!(!ours.is_client(&theirs.server()), "the proof of one side is not accepted as that of the other side");
        assert!(!ours.is_client("") && !ours.is_client(&theirs.client()[..63]));
        let tag = ours.session.tag(&[b"ab", b"c"]);
        assert!(theirs.session.proves(&[b"ab", b"c"], &tag) && !theirs.session.proves(&[b"a", b"bc"], &tag));
        for other in
            [Token::new("a good secreT").unwrap().secrets(&client, &server), token.secrets(&client, &[3; NONCE])]
        {
            assert!(!other.is_client(&ours.client()) && !other.session.proves(&[b"ab", b"c"], &tag));
        }
    }

    #[test]
    fn tokens_have_a_length() {
        assert!(
            Token::new("seven77").is_err() && Token::new("eight888").is_ok() && Token::new(&"x".repeat(1025)).is_err()
        );
        let token = Token::random().unwrap();
        assert_eq!(token.text().len(), 32);
        assert_ne!(token, Token::random().unwrap());
        assert!(!format!("{token:?}").contains(token.text()));
    }

    #[test]
    fn hexadecimal() {
        assert_eq!(hex(&[0, 0xab, 0xff]), "00abff");
        assert_eq!(unhex::<3>("00abff"), Some([0, 0xab, 0xff]));
        assert!(unhex::<3>("00abf").is_none() && unhex::<3>("00abfg").is_none() && unhex::<2>("é9").is_none());
    }
}
