//! One line of the log of a run's Squid, as `render` lets it be written. Pure.

use std::net::IpAddr;

use super::render;

/// What became of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// Milliseconds since 1970, UTC.
    pub(crate) at: u64,
    /// The port of Squid's at which it came in.
    pub(crate) door: u16,
    /// The port from which it came.
    pub(crate) from: u16,
    /// Who showed a token, if anybody did.
    pub(crate) user: Option<String>,
    pub(crate) method: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) status: u16,
    /// Squid's own word, for example `TCP_TUNNEL`.
    pub(crate) word: String,
    /// How the server was reached, for example `HIER_DIRECT`.
    pub(crate) way: String,
    /// The address that was connected to.
    pub(crate) address: Option<IpAddr>,
    /// Squid's name of an error, and more words.
    pub(crate) error: Option<String>,
    pub(crate) detail: Option<String>,
    /// The step that refused.
    pub(crate) refused: Option<Step>,
}

/// The steps at which the configuration refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Form,
    Rules,
    Address,
}

/// A line that is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a line of Squid's log cannot be read: {0}")]
pub(crate) struct BadLine(pub(crate) &'static str);

impl Line {
    /// Reads a line without its end.
    ///
    /// # Errors
    /// [`BadLine`] names the field.
    pub(crate) fn parse(line: &str) -> Result<Self, BadLine> {
        let mut fields = line.split(' ');
        let mut next = |name| fields.next().filter(|text| !text.is_empty()).ok_or(BadLine(name));
        let number = |text: &str, name| text.parse::<u64>().map_err(|_| BadLine(name));
        let port = |text: &str, name| match text {
            "-" => Ok(0),
            text => text.parse::<u16>().map_err(|_| BadLine(name)),
        };
        let given = |text: &str| (text != "-").then(|| text.to_owned());
        let at = number(next("time")?, "time")?;
        let door = port(next("door")?, "door")?;
        let from = port(next("client port")?, "client port")?;
        let user = given(next("user")?);
        let method = next("method")?.to_owned();
        let host = next("host")?.to_owned();
        let target = port(next("port")?, "port")?;
        let status = port(next("status")?, "status")?;
        let word = next("word")?.to_owned();
        let way = next("way")?.to_owned();
        let address = next("address")?.parse().ok();
        let error = given(next("error")?);
        let detail = given(next("detail")?);
        let refused = match next("check")? {
            "-" => None,
            render::FORM => Some(Step::Form),
            render::RULES => Some(Step::Rules),
            render::ADDRESS => Some(Step::Address),
            _ => return Err(BadLine("check")),
        };
        if fields.next().is_some() {
            return Err(BadLine("more fields than there are"));
        }
        Ok(Self {
            at,
            door,
            from,
            user,
            method,
            host,
            port: target,
            status,
            word,
            way,
            address,
            error,
            detail,
            refused,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{BadLine, Line, Step};

    #[test]
    fn a_line_is_read_field_by_field() {
        let line = "1700000000123 3129 40000 agent CONNECT a.example.com 443 200 TCP_TUNNEL \
                    HIER_DIRECT 11.22.33.44 - - -";
        let read = Line::parse(line).unwrap();
        assert_eq!((read.at, read.door, read.from), (1_700_000_000_123, 3129, 40000));
        assert_eq!((read.host.as_str(), read.port, read.status), ("a.example.com", 443, 200));
        assert_eq!(read.address, Some([11, 22, 33, 44].into()));
        assert_eq!((read.user.as_deref(), read.refused), (Some("agent"), None));
        let refused = line.replace(" - - -", " ERR_ACCESS_DENIED - ruleset");
        assert_eq!(Line::parse(&refused).unwrap().refused, Some(Step::Rules));
    }

    #[test]
    fn what_is_not_a_line_is_said_to_be_none() {
        for (line, field) in [
            ("", "time"),
            ("x", "time"),
            ("1 70000 1 - GET a 1 2 W H - - - -", "door"),
            ("1 1 1 - GET a 1 2 W H - - -", "check"),
            ("1 1 1 - GET a 1 2 W H - - - nothing", "check"),
            ("1 1 1 - GET a 1 2 W H - - - - more", "more fields than there are"),
        ] {
            assert_eq!(Line::parse(line), Err(BadLine(field)), "{line}");
        }
    }
}
