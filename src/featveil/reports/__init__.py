"""Records -> tables and figures. Reports only read records; they measure nothing."""

from featveil.reports.assumptions import (
    CollisionRow,
    MemberRow,
    assumptions_markdown,
    collision_cells,
    draw_assumptions,
    member_cells,
    summarize_assumptions,
)
from featveil.reports.attacks import (
    AttackRow,
    attack_cells,
    attacks_markdown,
    best_attacks,
    draw_attacks,
    summarize_attacks,
)
from featveil.reports.audit import summarize_audit
from featveil.reports.audit_page import audit_page
from featveil.reports.audit_pictures import AuditPictures
from featveil.reports.audit_rows import AuditRow, SkippedTrial, Spread, TrialRow
from featveil.reports.audit_tables import audit_cells, audit_markdown
from featveil.reports.curves import draw_matching_curves
from featveil.reports.face_attributes import (
    AttributeRow,
    attribute_cells,
    attributes_markdown,
    draw_attributes,
    summarize_attributes,
)
from featveil.reports.face_logins import LoginRow, draw_logins, login_cells, logins_markdown, summarize_logins
from featveil.reports.face_protection import (
    ProtectionRow,
    draw_protection,
    protection_cells,
    protection_markdown,
    summarize_protection,
)
from featveil.reports.face_verification import (
    VerificationRow,
    draw_det,
    draw_verification,
    summarize_verification,
    verification_cells,
    verification_markdown,
)
from featveil.reports.frontier import draw_frontier
from featveil.reports.inversion import (
    InversionRow,
    best_inversions,
    inversion_cells,
    inversion_columns,
    inversion_markdown,
    summarize_inversion,
)
from featveil.reports.inversion_curves import draw_inversion
from featveil.reports.inversion_grid import Seen, draw_inversion_grid
from featveil.reports.localization import (
    LocalizationRow,
    localization_cells,
    localization_markdown,
    summarize_localization,
)
from featveil.reports.localization_curves import draw_localization
from featveil.reports.mapping import MappingRow, mapping_cells, mapping_markdown, summarize_mapping
from featveil.reports.mapping_curves import draw_mapping
from featveil.reports.model_comparison import draw_models
from featveil.reports.model_pictures import View, choose_view, draw_model, side_by_side
from featveil.reports.oracle import OracleRow, draw_oracle, oracle_cells, oracle_markdown, summarize_oracle
from featveil.reports.tables import MatchingRow, matching_cells, matching_markdown, summarize_matching
from featveil.reports.tradeoff import (
    TradeoffRow,
    draw_tradeoff,
    summarize_tradeoff,
    tradeoff_cells,
    tradeoff_markdown,
)
from featveil.reports.word_curves import draw_words_curves
from featveil.reports.words import WordsRow, summarize_words, words_cells, words_markdown, words_tables

__all__ = [
    "AttackRow",
    "AttributeRow",
    "AuditPictures",
    "AuditRow",
    "CollisionRow",
    "InversionRow",
    "LocalizationRow",
    "LoginRow",
    "MappingRow",
    "MatchingRow",
    "MemberRow",
    "OracleRow",
    "ProtectionRow",
    "Seen",
    "SkippedTrial",
    "Spread",
    "TradeoffRow",
    "TrialRow",
    "VerificationRow",
    "View",
    "WordsRow",
    "assumptions_markdown",
    "attack_cells",
    "attacks_markdown",
    "attribute_cells",
    "attributes_markdown",
    "audit_cells",
    "audit_markdown",
    "audit_page",
    "best_attacks",
    "best_inversions",
    "choose_view",
    "collision_cells",
    "draw_assumptions",
    "draw_attacks",
    "draw_attributes",
    "draw_det",
    "draw_frontier",
    "draw_inversion",
    "draw_inversion_grid",
    "draw_localization",
    "draw_logins",
    "draw_mapping",
    "draw_matching_curves",
    "draw_model",
    "draw_models",
    "draw_oracle",
    "draw_protection",
    "draw_tradeoff",
    "draw_verification",
    "draw_words_curves",
    "inversion_cells",
    "inversion_columns",
    "inversion_markdown",
    "localization_cells",
    "localization_markdown",
    "login_cells",
    "logins_markdown",
    "mapping_cells",
    "mapping_markdown",
    "matching_cells",
    "matching_markdown",
    "member_cells",
    "oracle_cells",
    "oracle_markdown",
    "protection_cells",
    "protection_markdown",
    "side_by_side",
    "summarize_assumptions",
    "summarize_attacks",
    "summarize_attributes",
    "summarize_audit",
    "summarize_inversion",
    "summarize_localization",
    "summarize_logins",
    "summarize_mapping",
    "summarize_matching",
    "summarize_oracle",
    "summarize_protection",
    "summarize_tradeoff",
    "summarize_verification",
    "summarize_words",
    "tradeoff_cells",
    "tradeoff_markdown",
    "verification_cells",
    "verification_markdown",
    "words_cells",
    "words_markdown",
    "words_tables",
]
