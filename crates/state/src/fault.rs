//! What a driver's error means to a person.

use sqlx::error::DatabaseError;

use crate::Error;

/// Turns a driver's error into ours. Its own words are kept only where they say more; they never hold
/// values of a statement or the address.
pub(crate) fn fault(place: &str, error: &sqlx::Error) -> Error {
    let unavailable = |reason: String| Error::Unavailable { place: place.to_owned(), reason };
    match error {
        sqlx::Error::Database(error) => database(place, error.as_ref()),
        // What the TLS library finds comes this way too.
        sqlx::Error::Io(error) if error.to_string().contains("certificate") => {
            unavailable(no_tls(&error.to_string()))
        }
        sqlx::Error::Io(error) => {
            unavailable(format!("no connection ({error}): is the server up?"))
        }
        sqlx::Error::Tls(error) => unavailable(no_tls(&error.to_string())),
        sqlx::Error::PoolTimedOut => unavailable("no connection within 5 seconds".to_owned()),
        sqlx::Error::ColumnDecode { .. }
        | sqlx::Error::Decode(_)
        | sqlx::Error::ColumnNotFound(_)
        | sqlx::Error::ColumnIndexOutOfBounds { .. }
        | sqlx::Error::TypeNotFound { .. } => Error::Damaged {
            place: place.to_owned(),
            reason: format!("its tables are not as they were made ({error}): restore a copy"),
        },
        other => unavailable(other.to_string()),
    }
}

fn no_tls(words: &str) -> String {
    format!(
        "no TLS connection ({words}): the server's certificate must be for its name and of a known \
         authority (`sslrootcert=` in the address names another)"
    )
}

fn database(place: &str, error: &dyn DatabaseError) -> Error {
    let code = error.code();
    let code = code.as_deref().unwrap_or_default();
    let words = error.message();
    let unavailable = |reason: &str| Error::Unavailable {
        place: place.to_owned(),
        reason: format!("{reason} ({words})"),
    };
    let damaged = |reason: &str| Error::Damaged {
        place: place.to_owned(),
        reason: format!("{reason} ({words})"),
    };
    // SQLite's result codes are numbers, the primary one in the low byte; PostgreSQL's have five
    // characters (SQLSTATE, appendix A of its manual).
    if code.len() < 5
        && let Ok(code) = code.parse::<u32>()
    {
        return match code & 0xff {
            5 | 6 => unavailable("locked by another process for more than 5 seconds: try again"),
            8 => unavailable("it cannot be written: look at its mode and the disk"),
            10 => unavailable("the disk fails, or is full: look at it and try again"),
            11 | 26 => damaged("the file is damaged, or is no database of ours: restore a copy"),
            13 => unavailable("the disk is full: make room and try again"),
            14 => unavailable("it cannot be opened: look at the folder's mode and the disk"),
            _ => unavailable("it refused"),
        };
    }
    match code {
        "55P03" | "40P01" | "40001" | "57014" => {
            unavailable("locked by another process for too long: try again")
        }
        "53100" => unavailable("the server's disk is full"),
        "25006" => unavailable("the server takes no writes: is it a standby?"),
        "42501" => unavailable("its user may not do that: it needs to own the schema `ringfence`"),
        "42P01" | "42703" => damaged("its tables are not as they were made: restore a copy"),
        code if code.starts_with("28") => unavailable("the server does not let us in"),
        code if code.starts_with("XX") => damaged("the server found damage"),
        _ => unavailable("the server refused"),
    }
}
