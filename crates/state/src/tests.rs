use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use super::*;

const NOTES: Schema = Schema {
    room: "notes",
    steps: &["CREATE TABLE notes (id BIGINT PRIMARY KEY, words TEXT, more BIGINT)"],
};

fn home() -> tempfile::TempDir {
    let home = tempfile::tempdir().expect("a folder");
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o700)).expect("its mode");
    home
}

async fn noted(db: &Db) -> Vec<i64> {
    let mut tx = db.read().await.expect("reads");
    let rows = tx.query("SELECT id FROM notes ORDER BY id", &[]).await.expect("rows");
    tx.rollback().await.expect("ends");
    rows.iter().map(|row| row.int(0).expect("a number")).collect()
}

async fn note(db: &Db, id: i64) -> Result<(), Error> {
    let mut tx = db.write().await?;
    let cells = [Cell::Int(id), Cell::from(Some("words")), Cell::from(None::<i64>)];
    tx.execute("INSERT INTO notes VALUES ($1, $2, $3)", &cells).await?;
    tx.commit().await
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("is there").mode() & 0o777
}

#[tokio::test]
async fn nothing_is_touched_before_a_room_asks() {
    let home = home();
    let state = State::open(home.path(), None).expect("no I/O");
    assert!(state.existing(&NOTES).await.expect("looks").is_none());
    assert_eq!(fs::read_dir(home.path()).expect("lists").count(), 0);
    state.db(&NOTES).await.expect("opens");
    assert_eq!(mode(&home.path().join("state.db")), 0o600);
    assert!(state.existing(&NOTES).await.expect("looks").is_some());
}

#[tokio::test]
async fn what_is_committed_stays_and_what_is_not_does_not() {
    let home = home();
    let state = State::open(home.path(), None).expect("no I/O");
    let db = state.db(&NOTES).await.expect("opens");
    note(&db, 1).await.expect("commits");
    assert_eq!(mode(&home.path().join("state.db-wal")), 0o600);
    let mut tx = db.write().await.expect("begins");
    tx.execute("INSERT INTO notes VALUES (2, NULL, NULL)", &[]).await.expect("inserts");
    drop(tx);
    let mut tx = db.write().await.expect("begins: the dropped one let go of its lock");
    tx.execute("INSERT INTO notes VALUES (3, NULL, NULL)", &[]).await.expect("inserts");
    tx.rollback().await.expect("rolls back");
    let again = State::open(home.path(), None).expect("no I/O").db(&NOTES).await.expect("opens");
    assert_eq!(noted(&again).await, [1]);
}

/// What opening says of a home that was prepared.
async fn opening(prepare: impl FnOnce(&Path)) -> Result<(), Error> {
    let home = home();
    prepare(home.path());
    State::open(home.path(), None)?.db(&NOTES).await.map(drop)
}

#[tokio::test]
async fn a_file_that_others_have_a_hand_in_is_not_opened() {
    opening(|_| ()).await.expect("control: an empty folder");
    opening(|home| {
        fs::write(home.join("state.db"), "").expect("writes");
        fs::set_permissions(home.join("state.db"), fs::Permissions::from_mode(0o600))
            .expect("mode");
    })
    .await
    .expect("control: an empty file");
    type Prepare = fn(&Path);
    let cases: [(&str, Prepare); 7] = [
        ("a link", |home| symlink("elsewhere", home.join("state.db")).expect("links")),
        ("a link", |home| symlink("elsewhere", home.join("state.db-wal")).expect("links")),
        ("others may read", |home| fs::write(home.join("state.db"), "").expect("writes")),
        ("others may read", |home| fs::write(home.join("state.db-journal"), "").expect("writes")),
        ("second name", |home| {
            fs::write(home.join("state.db"), "").expect("writes");
            fs::set_permissions(home.join("state.db"), fs::Permissions::from_mode(0o600))
                .expect("mode");
            fs::hard_link(home.join("state.db"), home.join("other")).expect("links");
        }),
        ("regular", |home| fs::create_dir(home.join("state.db-shm")).expect("makes")),
        ("others may write", |home| {
            fs::set_permissions(home, fs::Permissions::from_mode(0o770)).expect("mode");
        }),
    ];
    for (word, prepare) in cases {
        let error = opening(prepare).await.expect_err(word);
        assert!(matches!(&error, Error::Unsafe { reason, .. } if reason.contains(word)), "{error}");
    }
    opening(|home| fs::create_dir(home.join("state.db")).expect("makes"))
        .await
        .expect_err("folder");
}

#[tokio::test]
async fn what_is_no_database_of_ours_is_left_alone() {
    let private = |home: &Path, bytes: &[u8]| {
        fs::write(home.join("state.db"), bytes).expect("writes");
        fs::set_permissions(home.join("state.db"), fs::Permissions::from_mode(0o600))
            .expect("mode");
    };
    let error = opening(|home| private(home, &[b'x'; 8192])).await.expect_err("no database");
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    // Another program's, made by SQLite itself.
    let home = home();
    let state = State::open(home.path(), None).expect("no I/O");
    let mut tx = state.db(&NOTES).await.expect("opens").write().await.expect("begins");
    tx.execute("DROP TABLE state_versions", &[]).await.expect("drops");
    tx.execute("PRAGMA application_id = 7", &[]).await.expect("marks");
    tx.commit().await.expect("commits");
    let again = State::open(home.path(), None).expect("no I/O").db(&NOTES).await;
    let error = again.err().expect("another's").to_string();
    assert!(error.contains("another program's"), "{error}");
}

#[tokio::test]
async fn tables_grow_by_steps_and_newer_ones_are_refused() {
    const MORE: Schema = Schema {
        room: "notes",
        steps: &[NOTES.steps[0], "CREATE TABLE notes_more (id BIGINT PRIMARY KEY)"],
    };
    let home = home();
    let open = || State::open(home.path(), None).expect("no I/O");
    note(&open().db(&NOTES).await.expect("opens"), 1).await.expect("writes");
    let newer = open().db(&MORE).await.expect("grows");
    assert_eq!(noted(&newer).await, [1], "what was there stays");
    let error = open().db(&NOTES).await.err().expect("newer");
    assert!(matches!(error, Error::Newer { found: 2, known: 1, .. }), "{error}");
    // A step that fails leaves nothing.
    const BROKEN: Schema =
        Schema { room: "broken", steps: &["CREATE TABLE broken_a (a BIGINT)", "nonsense"] };
    open().db(&BROKEN).await.err().expect("fails");
    const MENDED: Schema = Schema { room: "broken", steps: &["CREATE TABLE broken_a (a BIGINT)"] };
    open().db(&MENDED).await.expect("the first step was not kept");
}

#[tokio::test]
async fn two_rooms_and_many_programs_open_it_at_once() {
    const OTHER: Schema = Schema { room: "other", steps: &["CREATE TABLE other_a (a BIGINT)"] };
    let home = home();
    let path = home.path().to_owned();
    let all: Vec<_> = (0..16)
        .map(|n| {
            let path = path.clone();
            tokio::spawn(async move {
                let state = State::open(&path, None).expect("no I/O");
                state.db(if n % 2 == 0 { &NOTES } else { &OTHER }).await.map(drop)
            })
        })
        .collect();
    for one in all {
        one.await.expect("ends").expect("opens");
    }
}

#[tokio::test]
async fn what_was_said_soon_is_there_at_once_and_the_next_write_is_durable() {
    let home = home();
    let db = State::open(home.path(), None).expect("no I/O").db(&NOTES).await.expect("opens");
    let mut tx = db.write_soon().await.expect("begins");
    tx.execute("INSERT INTO notes VALUES (7, NULL, NULL)", &[]).await.expect("inserts");
    tx.commit().await.expect("commits");
    assert_eq!(noted(&db).await, [7]);
    for _ in 0..8 {
        let mut tx = db.write().await.expect("begins");
        let level = tx.query("PRAGMA synchronous", &[]).await.expect("says")[0].int(0);
        assert_eq!(level.expect("a number"), 2, "FULL, on whichever connection");
        tx.rollback().await.expect("ends");
    }
}

#[tokio::test]
async fn a_column_that_is_neither_number_nor_text_is_refused() {
    let home = home();
    let db = State::open(home.path(), None).expect("no I/O").db(&NOTES).await.expect("opens");
    let mut tx = db.read().await.expect("begins");
    let row = &tx.query("SELECT 1, 'x', NULL", &[]).await.expect("rows")[0];
    assert_eq!((row.int(0).expect("1"), row.text(1).expect("x")), (1, "x"));
    assert_eq!((row.maybe_int(2).expect("null"), row.maybe_text(2).expect("null")), (None, None));
    assert!(row.int(1).is_err() && row.text(0).is_err() && row.int(9).is_err());
    assert!(matches!(tx.query("SELECT 1.5", &[]).await, Err(Error::Damaged { .. })));
}
