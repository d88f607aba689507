"""What `featveil demo` shows: two pictures, a room, a face; what is sent of them, and what attackers make of it."""
