"""Lines drawn from fonts, as a hand might have written them: from texts to a dataset folder."""
