//! The body of a request, as it comes in: bounded in size and in time.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Buf as _;
use http::StatusCode;
use http_body::Body;
use http_body_util::BodyExt as _;
use tokio::time::Instant;

use super::HttpRefusal;
use super::room::{Place, Room, SMALL};

/// How long a body may take to arrive, beside the time in which it waits for room.
const BODY: Duration = Duration::from_secs(30);
/// How long a large one may take once it has its place.
const LARGE: Duration = Duration::from_secs(15);

/// Reads a body. A place for a large one is taken when it is seen to be large, whatever was announced.
///
/// # Errors
/// 413 when it is longer than `limit`, 408 when it takes too long, 400 when it breaks off, 503 when
/// there is no room for it in time.
pub(super) async fn read<B: Body>(
    body: B,
    limit: usize,
    room: &Room,
    who: &Option<Arc<str>>,
) -> Result<(Vec<u8>, Option<Place>), HttpRefusal> {
    let mut body = pin!(body);
    let (mut text, mut place) = (Vec::new(), None);
    let mut due = Instant::now() + BODY;
    loop {
        let frame = tokio::time::timeout_at(due, body.as_mut().frame()).await.map_err(|_| {
            HttpRefusal::new(StatusCode::REQUEST_TIMEOUT, "the body took too long to arrive")
        })?;
        let Some(frame) = frame else { return Ok((text, place)) };
        let frame = frame
            .map_err(|_| HttpRefusal::new(StatusCode::BAD_REQUEST, "the body could not be read"))?;
        let Ok(mut data) = frame.into_data() else { continue };
        if text.len() + data.remaining() > limit {
            let status = StatusCode::PAYLOAD_TOO_LARGE;
            return Err(HttpRefusal::new(status, "the body is too large"));
        }
        if place.is_none() && text.len() + data.remaining() > SMALL {
            let since = Instant::now();
            place = Some(room.large(who).await?);
            due = (due + since.elapsed()).min(Instant::now() + LARGE);
        }
        while data.has_remaining() {
            let chunk = data.chunk();
            text.extend_from_slice(chunk);
            let taken = chunk.len();
            data.advance(taken);
        }
    }
}
