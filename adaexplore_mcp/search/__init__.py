"""Decides where a search looks next: pure Python without input, output, clock or randomness of its own.

    search = Search(SearchSettings.preset("default"), seed=7, nodes=stored_nodes)
    proposal = search.propose(step, open_proposals)     # a small or a large step, its parent, what to show with it
    ...                                                 # an agent writes a kernel, somebody judges it
    search.record(Node(id=search.next_id, parent=proposal.parent, kind=proposal.kind, step=step, status="correct", speedup=1.7))
    search.stop_reason()                                # None, or why the run ends

The caller stores settings (`to_data`, `from_data`), seed, nodes in the order of recording, and open proposals, and makes the
same `Search` from them at any time: it holds nothing else. What a step draws depends on (seed, step) alone.
"""

from adaexplore_mcp.search.nodes import ROOT, Kind, Node, NodeStatus, makes_node
from adaexplore_mcp.search.rewards import reward
from adaexplore_mcp.search.search import Proposal, Search, StopReason
from adaexplore_mcp.search.settings import Preset, SearchSettings
from adaexplore_mcp.search.views import Gain, NodeView, SegmentView, gains, pool_view, tree_view

__all__ = [
    "ROOT",
    "Gain",
    "Kind",
    "Node",
    "NodeStatus",
    "NodeView",
    "Preset",
    "Proposal",
    "Search",
    "SearchSettings",
    "SegmentView",
    "StopReason",
    "gains",
    "makes_node",
    "pool_view",
    "reward",
    "tree_view",
]
