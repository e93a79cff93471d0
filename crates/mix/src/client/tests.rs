mod audits;
mod faults;
mod person;
mod simulation;
mod world;
