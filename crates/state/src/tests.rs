use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
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
