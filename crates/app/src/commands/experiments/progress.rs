//! A bar on standard error while tasks run, and what becomes of each that is over.

use std::io::IsTerminal;
use std::time::Duration;

use altq_cases::task::{Outcome, Task, Watcher};
use altq_dataplane::stop::Stop;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Watches over tasks: shows the progress, hands over what came of them, and hears of signals.
pub struct Progress<F> {
    bar: ProgressBar,
    /// Work that was done before what runs now, in milliseconds, about.
    before: u64,
    /// Work that comes after it.
    after: u64,
    stop: Stop,
    finished: F,
}

impl<F: FnMut(Task, Outcome)> Progress<F> {
    /// A bar over `first` milliseconds of work and `then` after it, if a person looks at it.
    /// Nothing more is begun once `stop` is set; `finished` is called for each task that is over.
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

    /// The work that comes after begins: its pace has nothing to do with that of the work before.
    pub fn next(&mut self) {
        self.bar.reset_eta();
        (self.before, self.after) = (self.bar.position(), 0);
    }

    /// Takes the bar away.
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
