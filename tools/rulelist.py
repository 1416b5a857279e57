"""Make a list of rules small: twenty of them within 1,500 tokens."""

import json
from collections.abc import Mapping
from typing import Any

from adaexplore_mcp.models import RuleView
from adaexplore_mcp.services.ruleviews import in_brief
from adaexplore_mcp.tools.outline import outline

__all__ = ["BUDGET_CHARACTERS", "within"]

BUDGET_CHARACTERS = 5400
"""1,500 tokens at 3.6 characters each, for the structured content and for the text."""
KEPT = ("rule_id", "rule", "why", "fix", "measured")


def within(page: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """Return a page of rules with what an agent needs of each, within the budget of twenty or in proportion.

    Measurements and fixes of the last rules go first, then the last rules; `left_out` counts those.
    """
    budget = BUDGET_CHARACTERS * max(limit, 20) // 20
    rules = [_brief(rule) for rule in page.get("rules", [])]
    data = {**page, "rules": rules}
    for name in ("measured", "fix", "why"):
        for rule in reversed(rules):
            if _size(data) <= budget:
                return data
            rule.pop(name, None)
    while len(rules) > 1 and _size(data) > budget:
        rules.pop()
        data["left_out"] = data.get("left_out", 0) + 1
    return data


def _brief(rule: Mapping[str, Any]) -> dict[str, Any]:
    brief = {**rule, "why": in_brief(RuleView.model_validate(rule))}
    if fix := rule.get("fix"):
        brief["fix"] = (
            f"{fix.get('before') or 'nothing'} → {fix.get('after') or 'nothing'} (worked {fix.get('worked', 1)}x)"
        )
    return {name: brief[name] for name in KEPT if brief.get(name)}


def _size(data: Mapping[str, Any]) -> int:
    return max(len(json.dumps(data, ensure_ascii=False)), len(outline(data)))
