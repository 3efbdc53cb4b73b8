//! An RMCP role whose messages are JSON values, so that the service loop loses none of their members.

use std::fmt;

use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, Extensions, GetExtensions, GetMeta,
    NotificationMetaObject, ProgressToken, RequestMetaObject,
};
use rmcp::service::{ProgressNotificationToken, ServiceRole};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// We ask.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawClient;

/// A request. `meta` is RMCP's scratch space: what stands in `params` is never touched.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) method: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) params: Option<Value>,
    #[serde(skip)]
    meta: RequestMetaObject,
    #[serde(skip)]
    extensions: Extensions,
}

impl Call {
    pub(crate) fn new(method: &str, params: Option<Value>) -> Self {
        Self {
            method: method.to_owned(),
            params,
            meta: RequestMetaObject::default(),
            extensions: Extensions::default(),
        }
    }
}

impl Call {
    /// With something that the transport finds again.
    pub(crate) fn carrying<T: Clone + Send + Sync + 'static>(mut self, what: T) -> Self {
        self.extensions.insert(what);
        self
    }

    /// What it carries.
    pub(crate) fn carried<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.extensions.get()
    }
}

/// A notification.
#[derive(Clone, Serialize, Deserialize)]
#[serde(from = "NoteText")]
pub(crate) struct Note {
    pub(crate) method: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) params: Option<Value>,
    #[serde(skip)]
    cancelled: Option<CancelledNotificationParam>,
    #[serde(skip)]
    meta: NotificationMetaObject,
    #[serde(skip)]
    extensions: Extensions,
}

#[derive(Deserialize)]
struct NoteText {
    method: String,
    #[serde(default)]
    params: Option<Value>,
}

impl From<NoteText> for Note {
    fn from(text: NoteText) -> Self {
        Self::new(&text.method, text.params)
    }
}

pub(crate) const CANCELLED: &str = "notifications/cancelled";

impl Note {
    pub(crate) fn new(method: &str, params: Option<Value>) -> Self {
        let cancelled = (method == CANCELLED)
            .then(|| params.clone().and_then(|params| serde_json::from_value(params).ok()))
            .flatten();
        Self {
            method: method.to_owned(),
            params,
            cancelled,
            meta: NotificationMetaObject::default(),
            extensions: Extensions::default(),
        }
    }
}

/// A result.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Reply(pub(crate) Value);

// What people and servers say to each other stays out of every log.
impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Call({})", self.method)
    }
}
impl fmt::Debug for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Note({})", self.method)
    }
}
impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}

impl GetMeta for Call {
    type Metadata = RequestMetaObject;
    fn get_meta_mut(&mut self) -> &mut RequestMetaObject {
        &mut self.meta
    }
    fn get_meta(&self) -> &RequestMetaObject {
        &self.meta
    }
}
impl GetMeta for Note {
    type Metadata = NotificationMetaObject;
    fn get_meta_mut(&mut self) -> &mut NotificationMetaObject {
        &mut self.meta
    }
    fn get_meta(&self) -> &NotificationMetaObject {
        &self.meta
    }
}
impl GetExtensions for Call {
    fn extensions(&self) -> &Extensions {
        &self.extensions
    }
    fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }
}
impl GetExtensions for Note {
    fn extensions(&self) -> &Extensions {
        &self.extensions
    }
    fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }
}
impl ProgressNotificationToken for Note {
    fn progress_token(&self) -> Option<&ProgressToken> {
        None
    }
}

impl From<CancelledNotification> for Note {
    fn from(cancelled: CancelledNotification) -> Self {
        Self::new(CANCELLED, serde_json::to_value(&cancelled.params).ok())
    }
}
impl TryFrom<Note> for CancelledNotification {
    type Error = Note;
    fn try_from(note: Note) -> Result<Self, Note> {
        match note.cancelled {
            Some(params) => Ok(Self::new(params)),
            None => Err(note),
        }
    }
}

macro_rules! role {
    ($role:ident, $client:literal) => {
        impl ServiceRole for $role {
            type Req = Call;
            type Resp = Reply;
            type Not = Note;
            type PeerReq = Call;
            type PeerResp = Reply;
            type PeerNot = Note;
            type InitializeError = std::convert::Infallible;
            const IS_CLIENT: bool = $client;
            type Info = ();
            type PeerInfo = ();

            fn peer_cancelled_params(note: &Note) -> Option<&CancelledNotificationParam> {
                note.cancelled.as_ref()
            }
        }
    };
}
role!(RawClient, true);
