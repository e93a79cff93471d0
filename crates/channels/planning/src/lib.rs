//! Plans of channels as a person asks for them: named channels, the answer to a request, and its
//! document. `sunder plan` and the page of `sunder lab serve` give the same answers by it.
//!
//! ```
//! use sunder_planning::{NamedChannel, PlanAnswer, PlanChannels, PlanDocument};
//! use model::{PlanRequest, ScheduleRequirements};
//!
//! let channels = ["z=0.1,l=0.01,d=2.5,r=100,name=fibre", "z=0.3,l=0.005,d=9,r=40,name=dsl"];
//! let channels = channels.map(|text| NamedChannel::parse(text).unwrap());
//! let channels = PlanChannels::new(&channels, &[]).unwrap();
//! let requirements =
//!     ScheduleRequirements { kappa: Some(1.5), mu: Some(2.0), ..ScheduleRequirements::default() };
//! let request = PlanRequest::new(requirements).unwrap();
//! let answer = PlanAnswer::find(&channels.set, &request, &|_, _| {}).unwrap();
//! let document = serde_json::to_value(PlanDocument::new(&channels, &answer, None)).unwrap();
//! assert_eq!(document["rate"], 40.0);
//! ```
//!
//! # Map
//!
//! `channels`: names, and how channels are written. `answer`: what is computed. `document`: the
//! answer as JSON. All are pure.

mod answer;
mod channels;
mod document;

pub use answer::{
    BestProperties, ImprovementEffect, ImprovementEffects, PlanAnswer, PlanProgress,
    PlannedSchedule, PropertyOverview,
};
pub use channels::{
    ChannelsFile, FIRST_PRIORITY, NamedChannel, NamedRiskGroup, PlanChannels, parse_proportion,
};
pub use document::{PlanDocument, quantity_key};
