//! The two ways out: data on stdout, talk on stderr. A reader that went away is no failure.

use std::io::{ErrorKind, IsTerminal as _, Write};

/// Where a command writes. Everything that reaches it went through `model::escape` before.
pub struct Out {
    data: Box<dyn Write>,
    talk: Box<dyn Write>,
    lost: Lost,
    /// Whether colours may be used on stdout.
    pub colour: Colour,
    /// What stdout is.
    pub reader: Reader,
    /// What stderr is; progress is for people only.
    pub listener: Reader,
}

/// Whether colours may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// On a terminal, unless `NO_COLOR` is set (no-color.org).
    Some,
    /// Plain text. It says the same: meaning is never in the colour alone.
    None,
}

/// What is at the other end of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// A person at a terminal.
    Terminal,
    /// A pipe, a file or nothing.
    Program,
}

/// What became of stdout.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Lost {
    Nothing,
    /// The reader closed its end: nobody wants more, and that is all right.
    Reader,
    /// Anything else, such as a full disk: output that somebody wanted is missing.
    Output(String),
}

/// What a piece of text stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    /// A heading of what goes.
    Reap,
    /// A heading of what stays.
    Keep,
    /// A heading of what could not be told.
    Unknown,
    /// Less important.
    Faint,
}

impl Out {
    /// Returns the process's own streams.
    pub fn standard() -> Out {
        let of = |terminal: bool| if terminal { Reader::Terminal } else { Reader::Program };
        let reader = of(std::io::stdout().is_terminal());
        let bare = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Out {
            data: Box::new(std::io::stdout()),
            talk: Box::new(std::io::stderr()),
            lost: Lost::Nothing,
            colour: if reader == Reader::Terminal && !bare { Colour::Some } else { Colour::None },
            reader,
            listener: of(std::io::stderr().is_terminal()),
        }
    }

    /// Returns ways out to these, and to programs.
    #[cfg(test)]
    pub fn to(data: Box<dyn Write>, talk: Box<dyn Write>) -> Out {
        let (reader, listener) = (Reader::Program, Reader::Program);
        Out { data, talk, lost: Lost::Nothing, colour: Colour::None, reader, listener }
    }

    /// Prints data, as it stands.
    pub fn data(&mut self, text: &str) {
        if self.lost != Lost::Nothing {
            return;
        }
        if let Err(error) = self.data.write_all(text.as_bytes()).and_then(|()| self.data.flush()) {
            self.lost = if error.kind() == ErrorKind::BrokenPipe {
                Lost::Reader
            } else {
                Lost::Output(error.to_string())
            };
        }
    }

    /// Prints one line of data.
    pub fn line(&mut self, text: &str) {
        self.data(text);
        self.data("\n");
    }

    /// Prints one line of talk. Nobody may be listening, and that changes nothing.
    pub fn talk(&mut self, text: &str) {
        let _ = writeln!(self.talk, "{text}");
    }

    /// Prints talk without ending the line, e.g. a question.
    pub fn murmur(&mut self, text: &str) {
        let _ = write!(self.talk, "{text}").and_then(|()| self.talk.flush());
    }

    /// Returns why output that somebody wanted is missing, if it is.
    pub fn missing(&self) -> Option<&str> {
        match &self.lost {
            Lost::Nothing | Lost::Reader => None,
            Lost::Output(why) => Some(why),
        }
    }
}

/// Returns text in the colour of what it stands for, where colours may be used.
pub fn paint(colour: Colour, paint: Paint, text: &str) -> String {
    let code = match (colour, paint) {
        (Colour::None, _) => return text.to_owned(),
        (Colour::Some, Paint::Reap) => "1;31",
        (Colour::Some, Paint::Keep) => "1;32",
        (Colour::Some, Paint::Unknown) => "1;33",
        (Colour::Some, Paint::Faint) => "2",
    };
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    struct Broken(ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn out(kind: ErrorKind) -> Out {
        Out::to(Box::new(Broken(kind)), Box::new(io::sink()))
    }

    #[test]
    fn a_reader_that_went_away_is_no_failure_and_a_full_disk_is() {
        let mut gone = out(ErrorKind::BrokenPipe);
        gone.line("x");
        assert_eq!(gone.missing(), None);
        let mut full = out(ErrorKind::StorageFull);
        full.line("x");
        assert!(full.missing().is_some());
    }

    #[test]
    fn colour_adds_nothing_but_colour() {
        assert_eq!(paint(Colour::None, Paint::Reap, "WOULD REAP"), "WOULD REAP");
        assert!(paint(Colour::Some, Paint::Reap, "WOULD REAP").contains("WOULD REAP"));
    }
}
