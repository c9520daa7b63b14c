//! The laboratory: experiments whose published figures stand beside Esker's.
