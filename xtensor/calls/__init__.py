"""What happens when a public function is called: rows, dispatch, recording, writes and capture."""
