"""Write what a run leaves behind: columns, files and folders."""
