mod crowd;
mod limits;
mod opaque;
mod plain;
mod refusals;
mod tls;
