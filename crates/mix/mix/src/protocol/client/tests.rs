mod audits;
mod faults;
mod observed;
mod person;
mod restores;
mod simulation;
mod world;
