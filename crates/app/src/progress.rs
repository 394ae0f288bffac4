//! The progress bar on standard error.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use altq_cases::task::{Outcome, Progress, Task, Watcher};
use altq_dataplane::stop::Stop;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What takes less time than this shows no bar.
const QUIET: Duration = Duration::from_secs(2);

/// A bar that appears on a terminal after two seconds, and nowhere else.
#[derive(Clone)]
struct Bar {
    bar: ProgressBar,
    begun: Instant,
}

impl Bar {
    fn new(whole: u64) -> Bar {
        let bar = ProgressBar::with_draw_target(Some(whole), ProgressDrawTarget::hidden());
        if let Ok(style) =
            ProgressStyle::with_template("{bar:20} {percent:>3} %  {elapsed_precise}, {eta} left  {wide_msg}")
        {
            bar.set_style(style.progress_chars("=> "));
        }
        Bar { bar, begun: Instant::now() }
    }

    fn show(&self, done: u64, whole: u64, doing: &str) {
        self.bar.set_length(whole);
        self.bar.set_position(done);
        self.bar.set_message(doing.to_owned());
        if self.bar.is_hidden() && self.begun.elapsed() >= QUIET && std::io::stderr().is_terminal() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.bar.enable_steady_tick(Duration::from_millis(500));
        }
    }
}

/// Watches tasks: shows the progress bar, passes on the outcomes, and says when to stop.
pub struct Tasks<F> {
    bar: Bar,
    /// Estimated work of the parts that are finished, in milliseconds.
    before: u64,
    /// Estimated work of the parts that have not begun, in milliseconds.
    after: u64,
    stop: Stop,
    finished: F,
}

impl<F: FnMut(Task, Outcome)> Tasks<F> {
    /// A bar over two parts of work, of `first` and `then` milliseconds. Once `stop` is set, no
    /// further task begins. `finished` is called for each task that ends.
    pub fn new(first: u64, then: u64, stop: Stop, finished: F) -> Tasks<F> {
        Tasks { bar: Bar::new(first + then), before: 0, after: then, stop, finished }
    }

    /// Begins the second part of the work. The time left is estimated anew, because this part may
    /// go faster or slower than the first.
    pub fn next(&mut self) {
        self.bar.bar.reset_eta();
        (self.before, self.after) = (self.bar.bar.position(), 0);
    }

    /// Removes the bar from the terminal.
    pub fn clear(&self) {
        self.bar.bar.finish_and_clear();
    }
}

impl<F: FnMut(Task, Outcome)> Watcher for Tasks<F> {
    fn finished(&mut self, task: Task, outcome: Outcome) {
        self.bar.bar.suspend(|| (self.finished)(task, outcome));
    }

    fn progress(&mut self, done: u64, whole: u64, running: &str) {
        self.bar.show(self.before + done, self.before + whole + self.after, running);
    }

    fn stopped(&self) -> bool {
        self.stop.is_set()
    }
}

/// A bar for the work of one command, as long as this value lives.
pub struct OnTerminal {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl OnTerminal {
    /// Shows on a terminal how far the work is.
    pub fn of(progress: Arc<Progress>) -> OnTerminal {
        if !std::io::stderr().is_terminal() {
            return OnTerminal { end: None, thread: None };
        }
        let (end, ended) = mpsc::channel();
        let bar = Bar::new(0);
        // Without the thread there is no bar, and all else is as it should be.
        let thread = std::thread::Builder::new().name("progress".into()).spawn(move || {
            while ended.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
                let (done, whole, doing) = progress.read();
                bar.show(done, whole, &doing);
            }
            bar.bar.finish_and_clear();
        });
        OnTerminal { end: Some(end), thread: thread.ok() }
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
