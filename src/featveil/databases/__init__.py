"""Public descriptors -> Database: building, splitting, files and the built-in default."""

from featveil.databases.building import build
from featveil.databases.builtin_databases import builtin
from featveil.databases.codebooks import nearest_words, word_points
from featveil.databases.concealed import ConcealedDatabase, conceal_database
from featveil.databases.database_files import load_database, save_database
from featveil.databases.entries import Database
from featveil.databases.recipes import Recipe

__all__ = [
    "ConcealedDatabase",
    "Database",
    "Recipe",
    "build",
    "builtin",
    "conceal_database",
    "load_database",
    "nearest_words",
    "save_database",
    "word_points",
]
