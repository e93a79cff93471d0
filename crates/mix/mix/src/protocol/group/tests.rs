mod faults;
mod membership;
mod plain;
mod random;
mod world;
