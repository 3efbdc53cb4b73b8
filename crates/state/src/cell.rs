//! What goes into a statement and comes out of it.

use crate::Error;

/// A value of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    /// `NULL` for a `BIGINT`; what a row gives for every `NULL`.
    NoInt,
    /// `NULL` for a `TEXT`: PostgreSQL wants an argument's type even then.
    NoText,
    /// `BIGINT`
    Int(i64),
    /// `TEXT`
    Text(String),
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Cell {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<Option<i64>> for Cell {
    fn from(value: Option<i64>) -> Self {
        value.map_or(Self::NoInt, Self::Int)
    }
}

impl From<Option<&str>> for Cell {
    fn from(value: Option<&str>) -> Self {
        value.map_or(Self::NoText, Self::from)
    }
}

impl From<Option<String>> for Cell {
    fn from(value: Option<String>) -> Self {
        value.map_or(Self::NoText, Self::Text)
    }
}

/// A row that a statement gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub(crate) place: String,
    pub(crate) cells: Vec<Cell>,
}

impl Row {
    /// A number.
    ///
    /// # Errors
    /// [`Error::Damaged`] when there is none in this column.
    pub fn int(&self, column: usize) -> Result<i64, Error> {
        match self.cells.get(column) {
            Some(Cell::Int(number)) => Ok(*number),
            other => Err(self.unexpected(column, "a number", other)),
        }
    }

    /// A text.
    ///
    /// # Errors
    /// [`Error::Damaged`] when there is none in this column.
    pub fn text(&self, column: usize) -> Result<&str, Error> {
        match self.cells.get(column) {
            Some(Cell::Text(text)) => Ok(text),
            other => Err(self.unexpected(column, "a text", other)),
        }
    }

    /// A number, or `None` for `NULL`.
    ///
    /// # Errors
    /// [`Error::Damaged`] when there is a text in this column, or no column.
    pub fn maybe_int(&self, column: usize) -> Result<Option<i64>, Error> {
        match self.cells.get(column) {
            Some(Cell::NoInt | Cell::NoText) => Ok(None),
            _ => self.int(column).map(Some),
        }
    }

    /// A text, or `None` for `NULL`.
    ///
    /// # Errors
    /// [`Error::Damaged`] when there is a number in this column, or no column.
    pub fn maybe_text(&self, column: usize) -> Result<Option<&str>, Error> {
        match self.cells.get(column) {
            Some(Cell::NoInt | Cell::NoText) => Ok(None),
            _ => self.text(column).map(Some),
        }
    }

    fn unexpected(&self, column: usize, wanted: &str, found: Option<&Cell>) -> Error {
        let found = match found {
            None => "nothing",
            Some(Cell::NoInt | Cell::NoText) => "NULL",
            Some(Cell::Int(_)) => "a number",
            Some(Cell::Text(_)) => "a text",
        };
        Error::Damaged {
            place: self.place.clone(),
            reason: format!("expected {wanted} in column {column}, found {found}: restore a copy"),
        }
    }
}
