//! Splits a stream's text into cells: delimiters, quotes and backslash escapes.

/// A cell of a stream.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cell {
    /// Its text; `None` if nothing is between two delimiters.
    pub(super) text: Option<String>,
    /// Byte offset of the cell, after white space.
    pub(super) offset: u64,
}

/// Incremental splitter: text comes in pieces, and a cell may extend over several.
#[derive(Debug)]
pub(super) struct Cells {
    delimiter: char,
    text: String,
    offset: u64,
    state: State,
    /// Length of the text without trailing white space.
    solid: usize,
    begun: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Bare,
    BareEscape,
    Quoted(char),
    QuotedEscape(char),
    /// After a closing quote: only a delimiter may follow.
    Closed,
}

impl Cells {
    pub(super) fn new(delimiter: char) -> Self {
        Self {
            delimiter,
            text: String::new(),
            offset: 0,
            state: State::Bare,
            solid: 0,
            begun: false,
        }
    }

    /// Processes a piece of text that begins at byte `offset`; calls `cell` for each cell ended by a delimiter.
    ///
    /// Fails with a reason and the byte offset, or with the error of `cell`.
    pub(super) fn feed<E: From<(String, u64)>>(
        &mut self,
        piece: &str,
        offset: u64,
        mut cell: impl FnMut(Cell) -> Result<(), E>,
    ) -> Result<(), E> {
        for (place, letter) in piece.char_indices() {
            let at = offset + place as u64;
            match self.state {
                State::Bare if letter == self.delimiter => cell(self.take(at))?,
                State::Closed if letter == self.delimiter => cell(self.take(at))?,
                State::Bare | State::Closed if letter.is_whitespace() => {
                    if self.begun && self.state == State::Bare {
                        self.text.push(letter);
                    }
                }
                State::Bare if matches!(letter, '"' | '\'') && !self.begun => {
                    (self.offset, self.begun, self.state) = (at, true, State::Quoted(letter));
                }
                State::Bare => {
                    if !self.begun {
                        (self.offset, self.begun) = (at, true);
                    }
                    if letter == '\\' { self.state = State::BareEscape } else { self.push(letter) }
                }
                State::BareEscape => {
                    self.push(letter);
                    self.state = State::Bare;
                }
                State::Quoted(quote) if letter == quote => self.state = State::Closed,
                State::Quoted(quote) if letter == '\\' => self.state = State::QuotedEscape(quote),
                State::Quoted(_) => self.push(letter),
                State::QuotedEscape(quote) => {
                    self.push(letter);
                    self.state = State::Quoted(quote);
                }
                State::Closed => {
                    let why =
                        format!("{letter:?} found behind a closing quote, expected a delimiter");
                    return Err((why, at).into());
                }
            }
        }
        Ok(())
    }

    /// Returns the last cell, which has no delimiter after it; `None` if it is absent.
    pub(super) fn finish(&mut self, end: u64) -> Result<Option<Cell>, (String, u64)> {
        match self.state {
            State::Bare | State::Closed => Ok(self.begun.then(|| self.take(end))),
            _ => Err(("the stream ends inside of a quoted text".to_owned(), self.offset)),
        }
    }

    fn push(&mut self, letter: char) {
        self.text.push(letter);
        self.solid = self.text.len();
    }

    fn take(&mut self, at: u64) -> Cell {
        self.text.truncate(self.solid);
        let text = self.begun.then(|| std::mem::take(&mut self.text));
        let offset = if self.begun { self.offset } else { at };
        *self = Self::new(self.delimiter);
        Cell { text, offset }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(pieces: &[&str]) -> Result<Vec<Option<String>>, (String, u64)> {
        let mut found = Vec::new();
        let mut cells = Cells::new(',');
        let mut offset = 0;
        for piece in pieces {
            cells.feed(piece, offset, |cell| {
                found.push(cell.text);
                Ok::<(), (String, u64)>(())
            })?;
            offset += piece.len() as u64;
        }
        found.extend(cells.finish(offset)?.map(|cell| cell.text));
        Ok(found)
    }

    #[test]
    fn quotes_escapes_and_empty_cells() {
        let some = |text: &str| Some(text.to_owned());
        let found =
            cells(&["\n\t1.5 , \"H1\",,\"a\\\"b\\\\,c\", x\\,y,\"\" ,two words\n"]).unwrap();
        let expected = [
            some("1.5"),
            some("H1"),
            None,
            some("a\"b\\,c"),
            some("x,y"),
            some(""),
            some("two words"),
        ];
        assert_eq!(found, expected);
        assert_eq!(cells(&[" \n "]).unwrap(), []);
        assert_eq!(cells(&["1,", "\n"]).unwrap(), [some("1")]);
    }

    #[test]
    fn pieces_make_no_difference() {
        let text = "\"a b\" , 1e-3,\\\\,,\"é\\\"\",7";
        let whole = cells(&[text]);
        for at in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
            assert_eq!(cells(&[&text[..at], &text[at..]]), whole);
        }
    }

    #[test]
    fn what_stands_behind_a_quote_or_never_ends_is_a_fault() {
        assert_eq!(cells(&["1,\"a\" b,"]).unwrap_err().1, 6);
        assert_eq!(cells(&["1,\"a"]).unwrap_err().1, 2);
        assert!(cells(&["1,a\\"]).is_err());
    }
}
