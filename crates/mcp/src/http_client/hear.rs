//! The stream of a session that belongs to no request (2025-03-26 to 2025-11-25).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Http;
use super::events::Place;
use super::reply::{Media, Stream, media};
use crate::Message;
use crate::lines::messages;
use crate::upstream::mailbox::Told;
use crate::upstream::questions::Question;

/// How often in a row the stream may fail before it is given up.
const FAILURES: u32 = 5;
/// A stream that lasted so long did not fail.
const LASTED: Duration = Duration::from_secs(30);

impl Http {
    /// Listens until the server has no such stream, or it failed too often. `open` is told when the
    /// first attempt is decided.
    pub(crate) async fn hear(self: Arc<Self>, open: oneshot::Sender<()>) {
        let mut open = Some(open);
        let mut place = Place::default();
        let mut failures = 0;
        while failures < FAILURES {
            let since = Instant::now();
            let response = self.get(&place).await;
            drop(open.take());
            let heard = match response {
                Ok(response) => {
                    let status = response.status();
                    if status.is_success() && media(response.headers()) == Media::Events {
                        self.hear_one(response, &mut place).await
                    } else if status.is_server_error() {
                        false
                    } else {
                        // It has none: 405, says the protocol.
                        return;
                    }
                }
                Err(_) => false,
            };
            let lasted = heard || since.elapsed() > LASTED;
            failures = if lasted { 0 } else { failures + 1 };
            tokio::time::sleep(place.retry * 2_u32.pow(failures)).await;
        }
    }

    /// True when there was a message.
    async fn hear_one(self: &Arc<Self>, response: reqwest::Response, place: &mut Place) -> bool {
        let mut stream = Stream::new(response, self.limits, self.desk.replies.clone());
        let mut heard = false;
        while let Ok((data, _held)) = stream.next(self.limits, place).await {
            let Ok(messages) = messages(&data, self.limits) else { return heard };
            heard = true;
            for message in messages {
                match message {
                    Message::Response { .. } => self.desk.stray_answer(),
                    Message::Notification { method, params } => {
                        self.desk.told(Told::new(method, params, &data));
                    }
                    Message::Request { id, method, params } => {
                        let to = Arc::clone(self) as Arc<_>;
                        self.desk.ask(None, Question { id, method, params, to });
                    }
                }
            }
        }
        heard
    }
}
