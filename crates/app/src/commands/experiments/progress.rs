//! A progress bar on standard error while tasks run.

use std::io::IsTerminal;
use std::time::Duration;

use altq_cases::task::{Outcome, Task, Watcher};
use altq_dataplane::stop::Stop;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Watches tasks: shows the progress bar, passes on the outcomes, and says when to stop.
pub struct Progress<F> {
    bar: ProgressBar,
    /// Estimated work of the parts that are finished, in milliseconds.
    before: u64,
    /// Estimated work of the parts that have not begun, in milliseconds.
    after: u64,
    stop: Stop,
    finished: F,
}

impl<F: FnMut(Task, Outcome)> Progress<F> {
    /// A bar over two parts of work, of `first` and `then` milliseconds. It is hidden unless
    /// standard error is a terminal. Once `stop` is set, no further task begins. `finished` is
    /// called for each task that ends.
    pub fn new(first: u64, then: u64, stop: Stop, finished: F) -> Progress<F> {
        let target =
            if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(first + then), target);
        if let Ok(style) =
            ProgressStyle::with_template("{bar:20} {percent:>3} %  {elapsed_precise}, {eta} left  {wide_msg}")
        {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.enable_steady_tick(Duration::from_millis(500));
        Progress { bar, before: 0, after: then, stop, finished }
    }

    /// Begins the second part of the work. The time left is estimated anew, because this part may
    /// go faster or slower than the first.
    pub fn next(&mut self) {
        self.bar.reset_eta();
        (self.before, self.after) = (self.bar.position(), 0);
    }

    /// Removes the bar from the terminal.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

impl<F: FnMut(Task, Outcome)> Watcher for Progress<F> {
    fn finished(&mut self, task: Task, outcome: Outcome) {
        self.bar.suspend(|| (self.finished)(task, outcome));
    }

    fn progress(&mut self, done: u64, whole: u64, running: &str) {
        self.bar.set_length(self.before + whole + self.after);
        self.bar.set_position(self.before + done);
        self.bar.set_message(running.to_owned());
    }

    fn stopped(&self) -> bool {
        self.stop.is_set()
    }
}
