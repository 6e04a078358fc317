-- All that a sql node which wrote may have left on its session, by functions it called, ends with it: settings, temporary tables, channels, cursors, locks, and what is prepared.
discard all
