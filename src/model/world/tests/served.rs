//! Answers about servers survive being written and read.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

pub(super) fn answered() -> BoxedStrategy<(Question, Known<Answer>)> {
    let bound = (id(), bytes(), file()).prop_map(|(of, path, file)| Question::Bound { of, path, file });
    let named = (id(), bytes()).prop_map(|(of, text)| Question::Named { of, text });
    let ping = (id(), text(), bytes(), vec(id(), 1..4), any::<u64>()).prop_map(
        |(of, policy, socket, tree, patience)| Question::Ping { of, policy, socket, tree, patience },
    );
    prop_oneof![
        fit(bound, binding(), Answer::Bound),
        fit(named, holders(), Answer::Named),
        fit(ping, pinged(), Answer::Ping),
    ]
    .boxed()
}

fn binding() -> BoxedStrategy<Binding> {
    let kind = prop_oneof![
        Just(FileKind::Socket),
        Just(FileKind::File),
        Just(FileKind::Directory),
        Just(FileKind::Link),
        Just(FileKind::Other)
    ];
    let parent = || parent().prop_map(Box::new);
    prop_oneof![
        Just(Binding::Here),
        bytes().prop_map(Binding::Renamed),
        parent().prop_map(|parent| Binding::Absent { parent }),
        parent().prop_map(|nearest| Binding::DirectoryAbsent { nearest }),
        (kind, parent()).prop_map(|(by, parent)| Binding::Replaced { by, parent }),
    ]
    .boxed()
}

fn pinged() -> BoxedStrategy<Pinged> {
    let response = prop_oneof![
        any::<u64>().prop_map(Response::Answered),
        any::<u64>().prop_map(Response::Silent),
        bytes().prop_map(Response::Otherwise)
    ];
    let progress = || {
        known(any::<(u64, u64)>().prop_map(|(moved, cpu)| Progress { moved, cpu: Duration::from_nanos(cpu) }))
    };
    (response, progress(), progress())
        .prop_map(|(response, before, after)| Pinged { response, before, after })
        .boxed()
}
