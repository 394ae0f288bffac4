//! Reads a file into [`Sources`].

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::diagnostic::{Diagnostic, Findings, SourceId, Sources, Span};
use crate::suggest;

/// Reads one file into the sources. If it cannot be read, that is an error at `from`, the place of
/// the `include` that names the file, or at the start of the file.
pub fn read(path: &Path, sources: &mut Sources, findings: &mut Findings, from: Option<Span>) -> Option<SourceId> {
    // What includes a file does not wait for a pipe that nobody writes to, or for a device.
    let bytes = match std::fs::metadata(path) {
        Ok(found) if from.is_some() && !found.is_file() => Err(io::Error::other("it is no regular file")),
        _ => File::open(path).and_then(read_bytes),
    };
    add(path, bytes, sources, findings, from)
}

/// What messages call a text that came from standard input. As a path it has no folder, so that
/// files which the text includes are looked for in the current one.
pub const STANDARD_INPUT: &str = "standard input";

/// Reads standard input to its end.
///
/// # Errors
///
/// It cannot be read, or has more bytes than a policy may have.
pub fn read_standard_input() -> io::Result<Vec<u8>> {
    read_bytes(io::stdin().lock())
}

/// Adds what was read to the sources. If it could not be read, or is no text, that is an error as
/// for [`read`].
pub fn add(
    path: &Path,
    bytes: io::Result<Vec<u8>>,
    sources: &mut Sources,
    findings: &mut Findings,
    from: Option<Span>,
) -> Option<SourceId> {
    let bytes = match bytes {
        Ok(bytes) => bytes,
        Err(error) => {
            let span =
                from.unwrap_or_else(|| Span { source: sources.add(path.to_owned(), String::new()), start: 0, end: 0 });
            let message = format!("{} cannot be read: {error}", path.display());
            let near = (error.kind() == io::ErrorKind::NotFound).then(|| suggest::near_file(path)).flatten();
            // An `include` counts from the folder of its own file.
            let folder = from.and_then(|from| sources.path(from.source).parent().map(Path::to_owned));
            let near = near.map(|near| match folder.and_then(|folder| near.strip_prefix(folder).ok()) {
                Some(from_there) => from_there.to_owned(),
                None => near,
            });
            let help = near.map(|near| format!("did you mean `{}`?", near.display()));
            findings.push(Diagnostic::error("cannot-read", span, message).help_if(help));
            return None;
        }
    };
    match String::from_utf8(bytes) {
        Ok(mut text) => {
            // Some editors write a byte order mark before the text, which is no part of it.
            if text.starts_with('\u{feff}') {
                text.drain(..'\u{feff}'.len_utf8());
            }
            Some(sources.add(path.to_owned(), text))
        }
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            let byte = error.as_bytes().get(at).copied().unwrap_or_default();
            // Replacing bad bytes changes no place before the first of them.
            let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
            let source = sources.add(path.to_owned(), text);
            let message = format!("this is not UTF-8 text: byte 0x{byte:02x} at offset {at}");
            findings.push(
                Diagnostic::error("not-text", Span { source, start: at, end: at + '\u{fffd}'.len_utf8() }, message)
                    .help("a policy is a text file in UTF-8"),
            );
            None
        }
    }
}

/// The most bytes that a policy may have. Without a limit a device or a pipe that never ends
/// would be read for ever.
const MOST_BYTES: u64 = 256 << 20;

fn read_bytes(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(io::Error::other(format!("it has more than {MOST_BYTES} bytes")));
    }
    Ok(bytes)
}
