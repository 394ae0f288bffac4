//! `eprint!` and `eprintln!` as the standard library has them, but without its panic where nothing
//! can be written to standard error: because a disk is full, or the reader of a pipe has gone. A
//! service must not end for want of its log.

macro_rules! eprint {
    ($($text:tt)*) => {{
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!($($text)*));
    }};
}

macro_rules! eprintln {
    ($($text:tt)*) => {
        eprint!("{}\n", format_args!($($text)*))
    };
}
