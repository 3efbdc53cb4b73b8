mod limits;
mod plain;
mod refusals;
mod tls;
