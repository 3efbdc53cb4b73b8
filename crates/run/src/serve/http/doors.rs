//! Which door a path leads to, and who may stand before it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use http::header::AUTHORIZATION;
use http::{Method, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use ringfence_bundle::Id;
use ringfence_mcp::{DoorBody, DoorOptions, HttpDoor, HttpRefusal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::super::bundle::{Connected, Served};
use super::super::front::Front;
use super::super::open::Ending;
use super::super::place::Place;
use super::super::tokens::Keyring;
use super::super::{Tokens, Which};
use super::Doorway;
use super::wait::Placed;

/// Doors of servers of one folder that are made while nothing says which servers it has. Their
/// clients wait there until it is trusted.
const UNSEEN: usize = 64;
/// Streams of one client that it listens to, at once. They wait, and cost little.
const STREAMS: usize = 1024;
/// The segment of the compact door.
const COMPACT: &str = "compact";

/// One folder with its place.
struct Room {
    name: Option<Id>,
    served: Arc<Served>,
    place: Arc<Place>,
}

/// Every door of one listener.
pub(super) struct Doors {
    rooms: Vec<Room>,
    options: DoorOptions,
    keyring: Arc<Keyring>,
    /// Those of a folder's servers, its own two, and one for whatever it does not declare: their
    /// number is not a client's to choose.
    made: Mutex<HashMap<(usize, Which), Arc<HttpDoor>>>,
    /// Turns away whoever has no token, after the same checks as every door.
    lobby: HttpDoor,
    clients: Mutex<HashMap<Arc<str>, Seats>>,
    per_client: usize,
    ending: watch::Receiver<bool>,
}

/// What one client may have at once.
#[derive(Clone)]
struct Seats {
    requests: Arc<Semaphore>,
    streams: Arc<Semaphore>,
}

impl Doors {
    pub(super) fn new(
        folders: Vec<(Option<Id>, Arc<Served>)>,
        hosts: Vec<String>,
        origins: Vec<String>,
        tokens: Tokens,
        ending: watch::Receiver<bool>,
        per_client: usize,
    ) -> Self {
        let rooms = folders.into_iter().map(|(name, served)| {
            let place = Place::fixed(Arc::clone(&served));
            Room { name, served, place }
        });
        let rooms: Vec<_> = rooms.collect();
        let keyring = Arc::new(Keyring::new(tokens));
        let known = Arc::clone(&keyring);
        let mut options = DoorOptions::loopback(0);
        options.hosts = hosts;
        options.origins = origins;
        options.bearer = Some(Arc::new(move |token: &str| known.client(token)));
        let nobody = Front::new(Arc::clone(&rooms[0].place), Which::All, ending.clone());
        let lobby = HttpDoor::with(Arc::new(nobody), options.clone());
        Self {
            rooms,
            options,
            keyring,
            made: Mutex::default(),
            lobby,
            clients: Mutex::default(),
            per_client,
            ending,
        }
    }

    pub(super) fn folders(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.rooms.iter().map(|room| &room.served)
    }

    /// A connection that is open counts as a client of every folder.
    pub(super) fn connect(&self) -> Vec<Connected> {
        self.folders().map(Served::connect).collect()
    }

    pub(super) fn addresses(&self, base: &str) -> Vec<Doorway> {
        let doorway = |room: &Room| {
            let base = match &room.name {
                Some(name) => format!("{base}/{name}"),
                None => base.to_owned(),
            };
            Doorway {
                folder: room.served.wish().request.project.clone(),
                all: format!("{base}/mcp"),
                compact: format!("{base}/{COMPACT}/mcp"),
                server: format!("{base}/{{server}}/mcp"),
            }
        };
        self.rooms.iter().map(doorway).collect()
    }

    /// Answers one request. `known` is set when it is that of a client.
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        known: &AtomicBool,
    ) -> Response<Placed> {
        let plain = |response: Response<DoorBody>| response.map(|body| Placed::new(body, None));
        let mut authorization = request.headers().get_all(AUTHORIZATION).iter();
        let given = authorization.next().and_then(|value| value.to_str().ok());
        let bearer = given.and_then(|value| value.split_once(' '));
        let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        // Whoever is nobody learns nothing of which doors there are.
        let client = bearer.and_then(|(_, token)| self.keyring.client(token));
        let Some(client) = client.filter(|_| authorization.next().is_none()) else {
            return plain(self.lobby.handle(request).await);
        };
        known.store(true, Ordering::Relaxed);
        let place = match self.seat(&client, request.method()) {
            Ok(place) => place,
            Err(refusal) => return plain(refusal.into_response()),
        };
        match self.route(request.uri()) {
            Ok((room, which)) => {
                let response = self.door(room, which).await.handle(request).await;
                response.map(|body| Placed::new(body, Some(place)))
            }
            Err(refusal) => plain(refusal.into_response()),
        }
    }

    fn seat(
        &self,
        client: &Arc<str>,
        method: &Method,
    ) -> Result<OwnedSemaphorePermit, HttpRefusal> {
        let seats = {
            let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
            let new = || Seats {
                requests: Arc::new(Semaphore::new(self.per_client)),
                streams: Arc::new(Semaphore::new(STREAMS)),
            };
            // No more than there are tokens: nobody else comes here.
            clients.entry(Arc::clone(client)).or_insert_with(new).clone()
        };
        let of = if *method == Method::GET { seats.streams } else { seats.requests };
        of.try_acquire_owned().map_err(|_| {
            let status = StatusCode::TOO_MANY_REQUESTS;
            HttpRefusal::new(status, "this client has too many requests under way")
        })
    }

    fn route(&self, uri: &Uri) -> Result<(usize, Which), HttpRefusal> {
        let path = segments(uri)?;
        let missing = HttpRefusal::new(StatusCode::NOT_FOUND, "there is no such door");
        let (room, path) = match self.rooms.iter().position(|room| room.name.is_some()) {
            None => (0, &path[..]),
            Some(_) => {
                let (first, rest) = path.split_first().ok_or(missing)?;
                let named =
                    |room: &Room| room.name.as_ref().is_some_and(|name| name.as_str() == *first);
                (self.rooms.iter().position(named).ok_or(missing)?, rest)
            }
        };
        match path {
            ["mcp"] => Ok((room, Which::All)),
            [COMPACT, "mcp"] => Ok((room, Which::Compact)),
            [server, "mcp"] => {
                let server = Id::parse(server).map_err(|_| missing)?;
                Ok((room, Which::Server(server)))
            }
            _ => Err(missing),
        }
    }

    async fn door(&self, room: usize, which: Which) -> Arc<HttpDoor> {
        let made = || self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (room, which);
        let found = made().get(&key).map(Arc::clone);
        if let Some(door) = found {
            return door;
        }
        let (room, which) = key;
        let Room { served, place, .. } = &self.rooms[room];
        let declared = match &which {
            Which::Server(server) => served.current().await.ok().map(|open| open.declares(server)),
            _ => Some(true),
        };
        let mut made = made();
        let which = led(&made, room, which, declared);
        let new = || {
            let front = Front::new(Arc::clone(place), which.clone(), self.ending.clone());
            Arc::new(HttpDoor::with(Arc::new(front), self.options.clone()))
        };
        Arc::clone(made.entry((room, which.clone())).or_insert_with(new))
    }

    /// Cuts off what is under way.
    pub(super) fn cut_off(&self) {
        self.folders().for_each(|served| served.cut_off());
    }

    /// Ends every session, and waits until every record is sealed.
    pub(super) async fn close(&self, ending: Ending) {
        let made: Vec<_> = {
            let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
            made.drain().map(|(_, door)| door).collect()
        };
        self.cut_off();
        for door in made {
            door.close().await;
        }
        for room in &self.rooms {
            room.place.close(ending.clone()).await;
        }
    }
}

/// The door that this path leads to, where none is made for it yet. `declared` says whether the folder
/// has this server, if anything says so.
fn led<D>(
    made: &HashMap<(usize, Which), D>,
    room: usize,
    which: Which,
    declared: Option<bool>,
) -> Which {
    let servers = || {
        let its = |(of, which): &&(usize, Which)| *of == room && matches!(which, Which::Server(_));
        made.keys().filter(its).count()
    };
    match declared {
        Some(true) => which,
        None if servers() < UNSEEN => which,
        _ => Which::Undeclared,
    }
}

/// The segments of a path that is spelled in the one plain way.
fn segments(uri: &Uri) -> Result<Vec<&str>, HttpRefusal> {
    let bad = |reason| Err(HttpRefusal::new(StatusCode::BAD_REQUEST, reason));
    if uri.scheme().is_some() || uri.authority().is_some() {
        return bad("expected a path, not a full URL");
    }
    if uri.query().is_some() {
        return bad("a query is not accepted");
    }
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'/');
    let Some(rest) = uri.path().strip_prefix('/').filter(|path| path.bytes().all(plain)) else {
        return bad("the path is ambiguous");
    };
    let segments: Vec<_> = rest.split('/').collect();
    if segments.iter().any(|segment| matches!(*segment, "" | "." | "..")) && !rest.is_empty() {
        return bad("the path is ambiguous");
    }
    Ok(segments)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use ringfence_bundle::Id;

    use super::{UNSEEN, Which, led};

    fn server(name: &str) -> Which {
        Which::Server(Id::parse(name).unwrap())
    }

    #[test]
    fn names_that_are_made_up_close_no_door() {
        let mut made = HashMap::new();
        // Asked for by anybody: of a folder that is open, and of one that is not yet.
        for n in 0..5000 {
            let name = server(&format!("made-up-{n}"));
            for (room, declared) in [(0, Some(false)), (1, None)] {
                made.insert((room, led(&made, room, name.clone(), declared)), ());
            }
        }
        let of = |room| made.keys().filter(|(its, _)| *its == room).count();
        assert_eq!((of(0), of(1)), (1, UNSEEN + 1));
        // Every server that there is has its own door still.
        for room in [0, 1] {
            assert_eq!(led(&made, room, server("up"), Some(true)), server("up"));
            assert_eq!(led(&made, room, Which::All, Some(true)), Which::All);
        }
        assert_eq!(led(&made, 0, server("up"), None), server("up"));
        assert_eq!(led(&made, 1, server("up"), None), Which::Undeclared);
    }
}
