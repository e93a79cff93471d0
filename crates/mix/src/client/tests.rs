mod person;
mod simulation;
mod world;
