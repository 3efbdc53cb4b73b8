//! Which of many keys does a text begin with? One binary search, then a walk up.

/// Keys in order, each knowing the longest other key that it begins with.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    key: Box<[u8]>,
    parent: Option<u32>,
    /// Lowest position, here or above, that matches by the key alone.
    sure: Option<u32>,
    /// Positions that need a closer look, in order.
    check: Vec<u32>,
}

impl Chain {
    /// From (key, position, whether the key alone decides).
    pub(crate) fn new(mut entries: Vec<(Box<[u8]>, u32, bool)>) -> Self {
        entries.sort_unstable();
        let mut nodes: Vec<Node> = Vec::with_capacity(entries.len());
        let mut path: Vec<u32> = Vec::new();
        for (key, position, sure) in entries {
            if nodes.last().is_none_or(|node| node.key != key) {
                while path.last().is_some_and(|n| !key.starts_with(&nodes[*n as usize].key)) {
                    path.pop();
                }
                let parent = path.last().copied();
                path.push(u32::try_from(nodes.len()).unwrap_or(u32::MAX));
                let above = parent.and_then(|n| nodes[n as usize].sure);
                nodes.push(Node { key, parent, sure: above, check: Vec::new() });
            }
            if let Some(node) = nodes.last_mut() {
                if sure {
                    node.sure = Some(node.sure.map_or(position, |at| at.min(position)));
                } else {
                    node.check.push(position);
                }
            }
        }
        Self { nodes }
    }

    /// The lowest position whose key the text begins with and which, where the key alone does not
    /// decide, `matches`.
    pub(crate) fn first(&self, text: &[u8], matches: impl Fn(u32) -> bool) -> Option<u32> {
        // Every key that the text begins with is a beginning of the last key not after the text:
        // both stand between that key and the text in the order.
        let after = self.nodes.partition_point(|node| *node.key <= *text);
        let mut at = self.nodes.get(after.checked_sub(1)?)?;
        while !text.starts_with(&at.key) {
            at = &self.nodes[at.parent? as usize];
        }
        let mut best = at.sure;
        loop {
            for position in &at.check {
                if best.is_some_and(|best| best < *position) {
                    break;
                }
                if matches(*position) {
                    best = Some(*position);
                    break;
                }
            }
            match at.parent {
                Some(parent) => at = &self.nodes[parent as usize],
                None => return best,
            }
        }
    }
}
