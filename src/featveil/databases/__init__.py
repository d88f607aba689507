"""Public descriptors -> Database: building, splitting, files and the built-in default."""

from featveil.databases.building import build
from featveil.databases.bundled import builtin
from featveil.databases.concealed import ConcealedDatabase, conceal_database
from featveil.databases.database import Database
from featveil.databases.files import load_database, save_database
from featveil.databases.recipes import Recipe
from featveil.databases.words import nearest_words, word_points

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
