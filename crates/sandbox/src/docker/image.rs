//! Images: the agent's, which is there or not, and the sidecar's, which is made from this program.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path};

use bollard::query_parameters::{CreateImageOptions, ListImagesOptions, RemoveImageOptions};
use futures_util::StreamExt as _;
use tokio::io::AsyncReadExt as _;

use super::Wanted;
use super::engine::{Engine, failed};
use crate::error::{Error, Result, Step};

/// Where no volume can be.
const TAKEN: [&str; 4] = ["/proc", "/sys", "/dev", "/etc"];
/// Of those, and besides them, what is scratch space in every container.
const SCRATCH: [&str; 3] = ["/tmp", "/home/agent", "/dev/shm"];
/// The sidecar image's name, before the tag that tells programs apart.
const SIDECAR: &str = "ringfence-sidecar";
/// Seconds after which the image of another build may go.
const OLD: i64 = 24 * 60 * 60;

/// An image that is there, by its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// As it was asked for.
    pub name: String,
    /// The digest of its configuration, by which the container is made: `sha256:…`.
    pub id: String,
    /// The digest in the registry from which it came, if it came from one.
    pub repository: Option<String>,
    /// Where its programs are looked up, if it says so.
    pub path: Option<String>,
    /// Folders that it wants to be volumes: they are scratch space here.
    pub(super) volumes: Vec<String>,
}

impl Image {
    /// Looks for an image. Nothing is ever pulled.
    ///
    /// # Errors
    /// [`Error::Spec`]: it is not there; [`Error::Step`]: the engine does not say.
    pub async fn find(engine: &Engine, name: &str) -> Result<Self> {
        let found = match engine.docker.inspect_image(name).await {
            Err(bollard::errors::Error::DockerResponseServerError { status_code: 404, .. }) => {
                return Err(Error::Spec(format!(
                    "there is no image `{0}` in this engine, and none is pulled; next: `docker build \
                     -t {0} .`, or `docker pull {0}` if you know where it comes from",
                    name.escape_debug()
                )));
            }
            found => {
                found.map_err(failed(format!("look for the image {}", name.escape_debug())))?
            }
        };
        let id = found.id.unwrap_or_default();
        if !id.starts_with("sha256:") {
            return Err(Error::Spec(format!("the image `{}` has no digest", name.escape_debug())));
        }
        let config = found.config.unwrap_or_default();
        // Scratch space in their place would hide what the runtime puts there.
        let mut volumes = std::collections::BTreeSet::new();
        for volume in config.volumes.unwrap_or_default() {
            match place(&volume) {
                // These are scratch space already.
                Some(place) if SCRATCH.contains(&place.as_str()) => {}
                Some(place) => drop(volumes.insert(place)),
                None => {
                    return Err(Error::Spec(format!(
                        "the image `{}` wants a volume at {}, which no sandbox gives",
                        name.escape_debug(),
                        volume.escape_debug()
                    )));
                }
            }
        }
        let volumes = volumes.into_iter().collect();
        let path = config.env.unwrap_or_default().into_iter();
        let path =
            path.filter_map(|pair| pair.strip_prefix("PATH=").map(str::to_owned)).next_back();
        Ok(Self {
            name: name.to_owned(),
            id,
            repository: found.repo_digests.unwrap_or_default().into_iter().next(),
            path: path.filter(|path| path.split(':').all(|part| part.starts_with('/'))),
            volumes,
        })
    }
}

/// A volume's place as the engine will have it, where it can be scratch space.
fn place(volume: &str) -> Option<String> {
    let path = Path::new(volume);
    let mut place = String::new();
    for part in path.components() {
        match part {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => {
                place.push('/');
                place.push_str(name.to_str()?);
            }
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    let taken = TAKEN.iter().any(|folder| Path::new(&place).starts_with(folder));
    (path.is_absolute() && !place.is_empty() && (!taken || SCRATCH.contains(&place.as_str())))
        .then_some(place)
}

/// The image of the sidecar, made now if this very program's is not there yet. Gives its id, which says
/// what is in it: a name could be given to any image, also by an agent who has a person build one.
///
/// # Errors
/// [`Error::Step`].
pub(super) async fn sidecar(engine: &Engine, wanted: &Wanted) -> Result<String> {
    let (program, name) = (&wanted.program, wanted.sidecar_name);
    let tag = stamp(program)?;
    let kept = std::fs::read_to_string(&wanted.kept).unwrap_or_default();
    let known = kept.lines().find_map(|line| line.strip_prefix(tag.as_str())?.strip_prefix(' '));
    if let Some(id) = known.filter(|id| id.starts_with("sha256:"))
        && let Ok(found) = engine.docker.inspect_image(id).await
        && found.id.as_deref() == Some(id)
    {
        return Ok(id.to_owned());
    }
    let options = CreateImageOptions {
        from_src: Some("-".into()),
        repo: Some(SIDECAR.into()),
        tag: Some(tag.clone()),
        ..CreateImageOptions::default()
    };
    let body = archive(program, name).await?;
    let mut progress = Box::pin(engine.docker.create_image(
        Some(options),
        Some(bollard::body_try_stream(body)),
        None,
    ));
    let mut id = None;
    while let Some(said) = progress.next().await {
        let said = said.map_err(failed("make the sidecar's image"))?;
        id = said.status.filter(|status| status.starts_with("sha256:")).or(id);
    }
    let id = id.ok_or_else(|| Error::Spec("the sidecar's image has no digest".into()))?;
    forget_old(engine, &format!("{SIDECAR}:{tag}")).await;
    // Where it cannot be kept it is made again by the next run.
    let _ = keep(&wanted.kept, &format!("{tag} {id}\n"));
    Ok(id)
}

/// Replaces a small file as a whole.
fn keep(file: &Path, text: &str) -> std::io::Result<()> {
    let new = file.with_extension(format!("new-{}", std::process::id()));
    std::fs::write(&new, text)?;
    std::fs::rename(&new, file)
}

/// Removes the images of other builds of this program, once they are a day old: another one that is in
/// use now may be about to start from its own. What a container uses stays.
async fn forget_old(engine: &Engine, own: &str) {
    let filters = HashMap::from([("reference".to_owned(), vec![SIDECAR.to_owned()])]);
    let options = ListImagesOptions { filters: Some(filters), ..ListImagesOptions::default() };
    // Whatever fails here is tried again with the next build.
    let Ok(found) = engine.docker.list_images(Some(options)).await else { return };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = i64::try_from(now.unwrap_or_default().as_secs()).unwrap_or(i64::MAX);
    let old = found.into_iter().filter(|image| now.saturating_sub(image.created) > OLD);
    for tag in old.flat_map(|image| image.repo_tags).filter(|tag| tag != own) {
        let options = RemoveImageOptions { force: false, ..RemoveImageOptions::default() };
        let _ = engine.docker.remove_image(&tag, Some(options), None).await;
    }
}

/// What tells this program's file from any other: it is not read for it.
fn stamp(program: &Path) -> Result<String> {
    use std::hash::{Hash as _, Hasher as _};
    let file = std::fs::metadata(program).step(format!("look at {}", program.display()))?;
    let marks = [
        file.dev(),
        file.ino(),
        file.size(),
        file.mtime().unsigned_abs(),
        file.mtime_nsec().unsigned_abs(),
        file.ctime().unsigned_abs(),
        file.ctime_nsec().unsigned_abs(),
    ];
    let mut text = String::new();
    for seed in 0..2_u64 {
        // No secret and no proof: a name.
        let mut hasher = std::hash::DefaultHasher::new();
        (seed, marks).hash(&mut hasher);
        let _ = write!(text, "{:016x}", hasher.finish());
    }
    Ok(text)
}

/// A root file system with the program in it and nothing else.
async fn archive(
    program: &Path,
    name: &str,
) -> Result<impl futures_util::Stream<Item = std::io::Result<bytes::Bytes>> + Send + 'static> {
    let step = "pack the sidecar's image";
    let file = tokio::fs::File::open(program).await.step(step)?;
    let size = file.metadata().await.step(step)?.len();
    let mut start = Vec::new();
    for folder in ["run/", "run/ringfence/", "proc/", "sys/", "dev/", "etc/"] {
        start.extend_from_slice(&header(folder, 0, tar::EntryType::Directory).step(step)?);
    }
    start.extend_from_slice(&header(name, size, tar::EntryType::Regular).step(step)?);
    let padding = usize::try_from(size.next_multiple_of(512) - size).unwrap_or(0);
    // Two empty blocks end an archive.
    let end = vec![0; padding + 1024];
    let start = futures_util::stream::once(async { Ok(bytes::Bytes::from(start)) });
    let end = futures_util::stream::once(async { Ok(bytes::Bytes::from(end)) });
    let content = futures_util::stream::try_unfold((file, size), |(mut file, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let most = usize::try_from(left.min(256 << 10)).unwrap_or(256 << 10);
        let mut piece = vec![0; most];
        file.read_exact(&mut piece).await?;
        let left = left - most as u64;
        Ok(Some((bytes::Bytes::from(piece), (file, left))))
    });
    Ok(start.chain(content).chain(end))
}

fn header(path: &str, size: u64, kind: tar::EntryType) -> std::io::Result<Vec<u8>> {
    let mut header = tar::Header::new_ustar();
    header.set_path(path)?;
    header.set_size(size);
    header.set_mode(0o755);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_entry_type(kind);
    header.set_cksum();
    Ok(header.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::place;

    #[test]
    fn a_volume_has_one_name_and_no_place_of_the_runtimes() {
        for (volume, expected) in [
            ("/data", Some("/data")),
            ("/data/", Some("/data")),
            ("//data/./x//", Some("/data/x")),
            ("/dev/shm", Some("/dev/shm")),
            ("/", None),
            ("/.", None),
            ("data", None),
            ("/x/../etc", None),
            ("/etc/", None),
            ("/./proc/x", None),
            ("/dev", None),
        ] {
            assert_eq!(place(volume).as_deref(), expected, "{volume}");
        }
    }
}
