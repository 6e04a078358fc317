select; -- filled by its change
