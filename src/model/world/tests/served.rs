//! Answers about servers survive being written and read.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

pub(super) fn answered() -> BoxedStrategy<(Question, Known<Answer>)> {
    let bound = (id(), bytes(), file()).prop_map(|(of, path, file)| Question::Bound { of, path, file });
    let named = (id(), bytes()).prop_map(|(of, text)| Question::Named { of, text });
    let ping = (id(), text(), call(), bytes(), vec(id(), 1..4), any::<u64>()).prop_map(
        |(of, policy, call, socket, tree, patience)| Question::Ping {
            of,
            policy,
            call,
            socket,
            tree,
            patience,
        },
    );
    let carriers = (vec(id(), 0..3), vec(id(), 0..3), any::<u32>())
        .prop_map(|(seen, unread, unseen)| Carriers { seen, unread, unseen });
    prop_oneof![
        fit(bound, binding(), Answer::Bound),
        fit(named, carriers, Answer::Named),
        fit(ping, pinged(), Answer::Ping),
    ]
    .boxed()
}

fn call() -> BoxedStrategy<Call> {
    let http = (bytes(), proptest::option::of(any::<u16>()), proptest::option::of(bytes()));
    prop_oneof![
        (bytes(), bytes()).prop_map(|(send, expect)| Call::Lines { send, expect }),
        (bytes(), bytes()).prop_map(|(send, expect)| Call::ContentLength { send, expect }),
        Just(Call::Mcp),
        http.prop_map(|(path, status, expect)| Call::Http { path, status, expect }),
        Just(Call::Greeting),
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

#[test]
fn a_ping_says_what_its_kind_can_say_and_no_more() {
    let fault = |said: &str| {
        let world = format!(
            "reapd world 1\nlook at 1d\n pid began command\n 7 1h node x\n ping 7 mine /s 7 5000 {said}\n"
        );
        parse(&world).err().map(|error| error.message)
    };
    for whole in
        ["mcp answered=3", "lines send=a expect=b silent=9", "http path=/ status=200 ?hung", "connect ?hung"]
    {
        assert_eq!(fault(whole), None, "{whole}");
    }
    assert!(fault("lines send=a answered=3").unwrap().contains("needs expect="));
    assert!(fault("mcp send=a answered=3").unwrap().contains("'send' is nothing"));
    assert!(fault("gopher answered=3").unwrap().contains("'gopher' is nothing that a ping speaks"));
}
